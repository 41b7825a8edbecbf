// SPDX-License-Identifier: Apache-2.0
// A gradient in float64 with the gauges of its limits, and how bound and expected size are put together from them (K8;
// derivations in docs/operators/attend_backward.md). Roundings arrive as numbers of an abstract model; who makes them is
// not the reference's affair.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace msabench::reference {

// How a weight p = exp(s - LSE) may be off; G is the sum of magnitudes behind the scaled score s.
//   theta = per_magnitude * G + per_score * |s| + constant + per_size * (|s| + |LSE|)
//   |p' - p| <= p * eta + underflow,  eta = exp(theta) - 1
// theta and eta are capped at 1e100, so that an endless chain of additions makes a huge bound and no NaN.
struct weight_error {
  double per_magnitude = 0, per_score = 0, constant = 0, per_size = 0;
  double underflow = 0;  // what is lost where the exponential itself leaves its range
};
double theta_of(const weight_error& err, double s, double magnitude, double lse);
double eta_of(double theta);

// How sums of products become stored gradients.
struct sum_error {
  double u_m = 0;                          // roundoff of one addition
  std::int64_t chain_q = 0, chain_kv = 0;  // longest runs of dependent additions in a gradient of a row, of a key;
                                           // 0: as many as there are terms, and never more than these
  double u_grad = 0, omega_grad = 0;       // roundoff of the store, and what its underflow may lose
  double fine = 0x1p-24;                   // the working precision; stands for every storage roundoff in fine_limit
};

// k u / (1 - k u): relative error of k dependent roundings; +inf from k u = 1/2 on, where it bounds nothing.
double chain_roundoff(std::int64_t k, double u);

// g = scale * sum over terms of w x, e.g. dK = softmax_scale * sum dS q. Elements are packed [rows][heads][channels].
struct gradient {
  gradient() = default;
  gradient(std::int64_t row_count, std::int64_t head_count, std::int64_t channel_count);

  std::int64_t rows = 0, heads = 0, channels = 0;
  std::vector<double> value;       // g
  std::vector<double> magnitude;   // |scale| * sum |w x|
  std::vector<double> error;       // |scale| * sum e |x|, e the bound of the error of w
  std::vector<double> fine_error;  // the same where every storage roundoff is sum_error::fine
  std::vector<double> spread;      // expected square of what the errors of w do
  // Per (row, head) [rows][heads].
  std::vector<std::int64_t> chain;  // terms; 0: an exact zero
  std::vector<double> roundoff;     // chain_roundoff of the longest chain that is declared and possible

  // `terms` in the line, of which at most `declared` (0: all) depend on each other.
  void set_chain(std::size_t line, std::int64_t terms, std::int64_t declared, double u_m);

  std::size_t line(std::int64_t row, std::int64_t head) const { return static_cast<std::size_t>(row * heads + head); }
  std::size_t element(std::int64_t row, std::int64_t head, std::int64_t channel) const {
    return static_cast<std::size_t>((row * heads + head) * channels + channel);
  }
};

// Lines of gradients, ascending: of those of queries these rows, of those of keys and values these rows of k, all heads
// of each.
struct gradient_lines {
  std::vector<std::int64_t> rows, keys;
};

// H of one element. The factor covers products of two errors, which the terms leave out.
struct gradient_limit {
  static constexpr double second_order = 1.02;
  double store = 0, weights = 0, additions = 0, underflow = 0;
  double total() const { return second_order * (store + weights + additions + underflow); }
};
gradient_limit limit_of(const gradient& g, std::size_t element, const sum_error& err);
// H if every storage roundoff were err.fine (H32): what is left of the limit is arithmetic.
double fine_limit(const gradient& g, std::size_t element, const sum_error& err);
// s2: the expected square of the error.
double expected_square(const gradient& g, std::size_t element, const sum_error& err);

}  // namespace msabench::reference

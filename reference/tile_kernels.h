// SPDX-License-Identifier: Apache-2.0
// The inner loops of the reference over one tile of at most 128 widened keys. Each sum runs in eight fixed lanes, so
// that every machine and every vector width gives the same bits: additions, products, absolute values and maxima only.
#pragma once

#include <cstdint>

namespace msabench::reference {

inline constexpr std::int64_t tile_keys = 128;
inline constexpr std::int64_t lanes = 8;

// Channels rounded up to whole lanes; the rest of a widened row is zero.
inline std::int64_t padded(std::int64_t channels) { return (channels + lanes - 1) / lanes * lanes; }

// Products of one query with n <= 128 keys [n][width]; width a multiple of `lanes`.
//   dot[j] = sum_c q_c k_jc,  magnitude[j] = sum_c |q_c k_jc|,  squares[j] = sum_c (q_c k_jc)^2 (nullptr: not wanted)
void score_tile(const double* keys, std::int64_t n, std::int64_t width, const double* query, double* dot,
                double* magnitude, double* squares);

// Sums over the n keys of a tile for `lanes` channels of their values [n][lanes]; each output has `lanes` elements.
//   mean = sum w v,  magnitude = sum |w v|,  squares = sum (w v)^2
struct moment_sums {
  double *mean, *magnitude, *squares;
};
void moments_tile(const double* values, std::int64_t n, const double* weight, const moment_sums& sums);

// The same for what needs the mean o first, u = |v - o|:
//   dev = sum w u,  e1 = sum w1 u,  e2 = sum (w2 u)^2,  x = sum max(|v|, u)
struct spread_sums {
  double *dev, *e1, *e2, *x;
};
void spreads_tile(const double* values, std::int64_t n, const double* weight, const double* weight1,
                  const double* weight2, const double* mean, const spread_sums& sums);

// mean = sum w v alone.
void mean_tile(const double* values, std::int64_t n, const double* weight, double* mean);

// Sums of a gradient and its gauges over n terms x [n][lanes]:
//   value = sum w x,  magnitude = sum |w x|,  error = sum e |x|,  fine_error = sum f |x|,  spread = sum t x^2
struct gradient_weights {
  const double *value, *error, *fine_error, *spread;  // w, e, f, t
};
struct gradient_line {
  double *value, *magnitude, *error, *fine_error, *spread;
};
void gradient_tile(const double* terms, std::int64_t n, const gradient_weights& weights, const gradient_line& sums);

}  // namespace msabench::reference

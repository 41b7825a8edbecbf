// SPDX-License-Identifier: Apache-2.0
#include "reference/gradient.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace msabench::reference {
namespace {

constexpr double largest = 1e100;

// How much smaller than its bound the error of the arithmetic is expected to be.
constexpr double usual_share = 1.0 / 16;

double squared(double x) { return x * x; }

// 0 times an endless chain's infinity is no contribution.
double times(double coefficient, double x) { return x == 0 ? 0 : coefficient * x; }

double additions(const gradient& g, std::size_t element) {
  return times(g.roundoff[element / static_cast<std::size_t>(g.channels)], g.magnitude[element]);
}

}  // namespace

double theta_of(const weight_error& err, double s, double magnitude, double lse) {
  const double size = std::abs(s);
  const double theta =
      times(err.per_magnitude, magnitude) + err.per_score * size + err.constant + err.per_size * (size + std::abs(lse));
  return std::min(theta, largest);
}

double eta_of(double theta) { return std::min(std::expm1(theta), largest); }

double chain_roundoff(std::int64_t k, double u) {
  const double ku = static_cast<double>(k) * u;
  return ku < 0.5 ? ku / (1 - ku) : std::numeric_limits<double>::infinity();
}

gradient::gradient(std::int64_t row_count, std::int64_t head_count, std::int64_t channel_count)
    : rows(row_count), heads(head_count), channels(channel_count) {
  const auto lines = static_cast<std::size_t>(rows * heads);
  for (auto* gauge : {&value, &magnitude, &error, &fine_error, &spread})
    gauge->resize(lines * static_cast<std::size_t>(channels));
  chain.resize(lines);
  roundoff.resize(lines);
}

void gradient::set_chain(std::size_t line, std::int64_t terms, std::int64_t declared, double u_m) {
  chain[line] = terms;
  roundoff[line] = chain_roundoff(declared == 0 ? terms : std::min(terms, declared), u_m);
}

gradient_limit limit_of(const gradient& g, std::size_t element, const sum_error& err) {
  return {err.u_grad * std::abs(g.value[element]), g.error[element], additions(g, element), err.omega_grad};
}

double fine_limit(const gradient& g, std::size_t element, const sum_error& err) {
  const gradient_limit fine{err.fine * std::abs(g.value[element]), g.fine_error[element], additions(g, element),
                            err.omega_grad};
  return fine.total();
}

double expected_square(const gradient& g, std::size_t element, const sum_error& err) {
  return squared(err.u_grad * g.value[element]) / 3 + g.spread[element] +
         squared(usual_share * fine_limit(g, element, err)) + squared(err.omega_grad) / 3;
}

}  // namespace msabench::reference

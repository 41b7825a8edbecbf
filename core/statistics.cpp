// SPDX-License-Identifier: Apache-2.0
#include "core/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace msabench {

double quantile(std::span<const double> ascending, double q) {
  if (ascending.empty()) return std::numeric_limits<double>::quiet_NaN();
  const double at = q * static_cast<double>(ascending.size() - 1);
  const auto below = std::min(static_cast<std::size_t>(at), ascending.size() - 1);
  const auto above = std::min(below + 1, ascending.size() - 1);
  return std::lerp(ascending[below], ascending[above], at - static_cast<double>(below));
}

rank_interval median_ranks(std::size_t samples, double coverage) {
  if (samples == 0) return {};
  // P(Binomial(n, 1/2) <= k), grown term by term; in logarithms, so that 2^-n of many samples does not vanish.
  const auto n = static_cast<double>(samples);
  const auto probability = [n](double k) {
    return std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) - n * std::log(2.0));
  };
  rank_interval best{0, samples - 1, 1 - 2 * probability(0)};
  double tail = probability(0);
  // The interval between ranks r and n - 1 - r misses the median where at most r samples lie on one side of it.
  for (std::size_t r = 1; 2 * r + 1 < samples; ++r) {
    tail += probability(static_cast<double>(r));
    if (1 - 2 * tail < coverage) break;
    best = {r, samples - 1 - r, 1 - 2 * tail};
  }
  if (samples == 1) best.coverage = 0;
  return best;
}

sample_summary summarize(std::span<const double> values) {
  sample_summary s;
  if (values.empty()) return s;
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const rank_interval ranks = median_ranks(sorted.size());
  s.count = sorted.size();
  s.median = quantile(sorted, 0.5);
  s.first_quartile = quantile(sorted, 0.25);
  s.third_quartile = quantile(sorted, 0.75);
  s.fastest = sorted.front();
  s.low = sorted[ranks.low];
  s.high = sorted[ranks.high];
  s.coverage = ranks.coverage;
  s.relative_half_width = s.median > 0 ? (s.high - s.low) / 2 / s.median : 0;
  return s;
}

bool enough_samples(std::span<const double> seconds, const stopping_rule& rule) {
  if (seconds.empty()) return false;
  const sample_summary s = summarize(seconds);
  const std::size_t least = s.median > rule.long_item_s ? rule.min_long_samples : rule.min_samples;
  return s.count >= least && s.relative_half_width <= rule.relative_half_width;
}

}  // namespace msabench

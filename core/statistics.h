// SPDX-License-Identifier: Apache-2.0
// What timing samples say: median, quartiles, an interval for the median, and when there are enough of them. Order
// statistics only: a distribution of times has a hard left end and a long right tail, for which means and standard
// deviations are the wrong words.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace msabench {

// The q-quantile (0 .. 1) of values in ascending order, linear between neighbours; NaN of none.
double quantile(std::span<const double> ascending, double q);

// Ranks (from 0) of the two order statistics between which the median of the distribution lies with at least `coverage`
// whatever the distribution is (binomial with p = 1/2). Where so few samples can't reach the coverage: first and last.
struct rank_interval {
  std::size_t low = 0, high = 0;
  double coverage = 0;  // that is reached
};
rank_interval median_ranks(std::size_t samples, double coverage = 0.95);

struct sample_summary {
  std::size_t count = 0;
  double median = 0, first_quartile = 0, third_quartile = 0, fastest = 0;
  double low = 0, high = 0;        // of the median's interval
  double coverage = 0;             // that the interval has
  double relative_half_width = 0;  // (high - low) / 2 / median
};
// Of values in any order; all zero of none.
sample_summary summarize(std::span<const double> values);

struct stopping_rule {
  std::size_t min_samples = 10;      // 1 at the least
  std::size_t min_long_samples = 3;  // instead, for items whose median is above long_item_s
  double long_item_s = 1;
  double relative_half_width = 0.01;  // of the median's interval; reached: stop
};
// Enough: the smallest number is there and the interval is narrow. A budget of time is the caller's.
bool enough_samples(std::span<const double> seconds, const stopping_rule& rule);

}  // namespace msabench

// SPDX-License-Identifier: Apache-2.0
#include "core/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace msabench {
namespace {

TEST(statistics, quantiles_are_linear_between_neighbours) {
  const std::vector<double> v = {1, 2, 4, 8};
  EXPECT_EQ(quantile(v, 0), 1);
  EXPECT_EQ(quantile(v, 1), 8);
  EXPECT_EQ(quantile(v, 0.5), 3);
  EXPECT_EQ(quantile(v, 0.25), 1.75);
  EXPECT_EQ(quantile(std::vector<double>{7}, 0.3), 7);
  EXPECT_TRUE(std::isnan(quantile({}, 0.5)));
}

// P(Binomial(n, 1/2) <= k) by adding up Pascal's triangle in whole numbers.
double binomial_tail(std::size_t n, std::size_t k) {
  std::vector<double> row = {1};
  for (std::size_t i = 0; i < n; ++i) {
    row.push_back(0);
    for (std::size_t j = row.size(); j-- > 1;) row[j] += row[j - 1];
  }
  double sum = 0;
  for (std::size_t j = 0; j <= k; ++j) sum += row[j];
  return sum / std::pow(2.0, static_cast<double>(n));
}

TEST(statistics, ranks_are_the_narrowest_that_cover) {
  for (std::size_t n = 2; n <= 50; ++n) {
    const rank_interval r = median_ranks(n);
    EXPECT_EQ(r.low + r.high, n - 1) << n;
    EXPECT_LE(r.low, r.high) << n;
    EXPECT_NEAR(r.coverage, 1 - 2 * binomial_tail(n, r.low), 1e-12) << n;
    if (r.low > 0) {
      EXPECT_GE(r.coverage, 0.95) << n;
    }
    // One rank further in is no longer enough.
    if (2 * (r.low + 1) + 1 < n) {
      EXPECT_LT(1 - 2 * binomial_tail(n, r.low + 1), 0.95) << n;
    }
  }
  EXPECT_EQ(median_ranks(10).low, 1u);  // the table of every textbook: ranks 2 and 9 of 10, 97.9 %
  EXPECT_NEAR(median_ranks(10).coverage, 0.9785, 1e-4);
}

TEST(statistics, few_samples_span_all_of_them) {
  for (const std::size_t n : {1u, 2u, 3u, 4u, 5u}) {
    const rank_interval r = median_ranks(n);
    EXPECT_EQ(r.low, 0u);
    EXPECT_EQ(r.high, n - 1);
    EXPECT_LT(r.coverage, 0.95);
  }
  EXPECT_EQ(median_ranks(1).coverage, 0);
  EXPECT_EQ(summarize({}).count, 0u);
}

TEST(statistics, many_samples_do_not_vanish) {
  const rank_interval r = median_ranks(4000);
  EXPECT_GE(r.coverage, 0.95);
  EXPECT_LT(r.coverage, 0.96);
  // Normal approximation: n/2 -+ 1.96 sqrt(n)/2.
  EXPECT_NEAR(static_cast<double>(r.low), 2000 - 62, 2);
}

// The interval is meant for any distribution: it has to hold the median of a skewed one as often as it says.
TEST(statistics, interval_covers_the_median_of_a_skewed_distribution) {
  std::mt19937 random(1);
  std::exponential_distribution<double> exponential(1);
  const double median = std::log(2.0);
  int held = 0;
  constexpr int trials = 4000;
  double coverage = 0;
  for (int t = 0; t < trials; ++t) {
    std::vector<double> v(25);
    std::ranges::generate(v, [&] { return exponential(random); });
    const sample_summary s = summarize(v);
    coverage = s.coverage;
    held += s.low <= median && median <= s.high;
  }
  const double share = held / static_cast<double>(trials);
  EXPECT_NEAR(share, coverage, 4 * std::sqrt(coverage * (1 - coverage) / trials));
}

TEST(statistics, order_of_samples_is_no_matter) {
  std::vector<double> v = {5, 1, 4, 2, 3, 9, 7, 8, 6, 10, 11};
  const sample_summary s = summarize(v);
  std::sort(v.begin(), v.end());
  const sample_summary t = summarize(v);
  EXPECT_EQ(s.median, 6);
  EXPECT_EQ(s.fastest, 1);
  EXPECT_EQ(s.first_quartile, 3.5);
  EXPECT_EQ(s.third_quartile, 8.5);
  EXPECT_EQ(s.low, t.low);
  EXPECT_EQ(s.high, t.high);
  EXPECT_EQ(s.relative_half_width, (s.high - s.low) / 2 / s.median);
}

TEST(stopping_rule, needs_its_samples_and_a_narrow_interval) {
  const stopping_rule rule;
  EXPECT_FALSE(enough_samples({}, rule));
  EXPECT_FALSE(enough_samples(std::vector<double>(9, 0.01), rule));
  EXPECT_TRUE(enough_samples(std::vector<double>(10, 0.01), rule));
  std::vector<double> wide;
  for (int i = 0; i < 10; ++i) wide.push_back(0.01 * (1 + 0.05 * i));
  EXPECT_FALSE(enough_samples(wide, rule));
}

TEST(stopping_rule, three_samples_of_a_long_item_are_enough) {
  const stopping_rule rule;
  EXPECT_FALSE(enough_samples(std::vector<double>(2, 1.5), rule));
  EXPECT_TRUE(enough_samples(std::vector<double>(3, 1.5), rule));
  EXPECT_FALSE(enough_samples(std::vector<double>(3, 0.9), rule));
  EXPECT_FALSE(enough_samples(std::vector<double>{1.5, 1.5, 1.6}, rule));
}

}  // namespace
}  // namespace msabench

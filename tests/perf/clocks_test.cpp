// SPDX-License-Identifier: Apache-2.0
#include "perf/clocks.h"

#include <gtest/gtest.h>

#include <vector>

namespace msabench {
namespace {

samples at(std::vector<double> mhz) {
  samples s;
  s.sm_mhz = std::move(mhz);
  return s;
}

TEST(clocks, samples_far_below_the_median_are_flagged) {
  EXPECT_EQ(low_clock_samples(std::vector<double>{1980, 1990, 1980, 1890, 1200}), (std::vector<std::int64_t>{4}));
  EXPECT_EQ(low_clock_samples(std::vector<double>{1000, 951, 1000, 949, 1000}), (std::vector<std::int64_t>{3}));
  EXPECT_TRUE(low_clock_samples({}).empty());
}

TEST(clocks, a_fast_sample_is_none_of_them) {
  EXPECT_TRUE(low_clock_samples(std::vector<double>{1500, 1500, 1980}).empty());
}

TEST(clocks, medians_decide_what_is_compared) {
  EXPECT_EQ(clocks_apart(at({1980, 1980, 100}), at({1980, 1930, 1930})), "");
  const std::string why = clocks_apart(at({1980, 1980, 1980}), at({1900, 1900, 1980}));
  EXPECT_NE(why.find("1980 and 1900 MHz"), std::string::npos) << why;
  EXPECT_NE(clocks_apart(at({1900}), at({1980})), "");
}

TEST(clocks, the_bound_is_three_in_a_hundred_of_the_higher) {
  EXPECT_EQ(clocks_apart(at({2000}), at({1940})), "");
  EXPECT_NE(clocks_apart(at({2000}), at({1939})), "");
}

TEST(clocks, where_nobody_counted_there_is_nothing_to_say) {
  EXPECT_EQ(clocks_apart(at({}), at({1980})), "");
  EXPECT_EQ(clocks_apart(at({}), at({})), "");
}

}  // namespace
}  // namespace msabench

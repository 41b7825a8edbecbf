// SPDX-License-Identifier: Apache-2.0
#include "perf/time_shares.h"

#include <gtest/gtest.h>

namespace msabench {
namespace {

TEST(time_shares, half_is_for_launches_in_a_row_as_far_as_they_want_it) {
  const time_shares all = share_time({8, 20, 0.5, 1, 4, false});
  EXPECT_DOUBLE_EQ(all.samples_s, 4);
  EXPECT_DOUBLE_EQ(all.in_a_row_s, 4);
  const time_shares some = share_time({8, 20, 0.5, 0.5, 1, false});
  EXPECT_DOUBLE_EQ(some.samples_s, 7);
  EXPECT_DOUBLE_EQ(some.in_a_row_s, 1);
  const time_shares none = share_time({8, 20, 0.5, 0, 0, false});
  EXPECT_DOUBLE_EQ(none.samples_s, 8);
  EXPECT_DOUBLE_EQ(none.in_a_row_s, 0);
}

// A point that was taken to be dear had no time left of its own, and lacked what the budget had in plenty.
TEST(time_shares, a_run_of_each_is_had_where_the_budget_has_it) {
  for (const double own : {-3.0, 0.0, 0.5, 2.0, 3.0}) {
    const time_shares s = share_time({own, 12, 0.5, 3, 4.5, false});
    EXPECT_DOUBLE_EQ(s.in_a_row_s, 3) << own;
    EXPECT_DOUBLE_EQ(s.samples_s, 0.5) << own;
  }
  const time_shares more = share_time({4, 12, 0.5, 3, 4.5, false});
  EXPECT_DOUBLE_EQ(more.in_a_row_s, 3);
  EXPECT_DOUBLE_EQ(more.samples_s, 1);
}

TEST(time_shares, the_budget_is_kept_to_but_for_the_fewest_samples) {
  const time_shares some = share_time({0.1, 2, 0.5, 3, 4.5, false});
  EXPECT_DOUBLE_EQ(some.samples_s, 0.5);
  EXPECT_DOUBLE_EQ(some.in_a_row_s, 1.5);
  const time_shares none = share_time({-1, -1, 0.5, 3, 4.5, false});
  EXPECT_DOUBLE_EQ(none.samples_s, 0.5);
  EXPECT_DOUBLE_EQ(none.in_a_row_s, 0);
  const time_shares whole = share_time({-1, -1, 2, 3, 4.5, true});
  EXPECT_DOUBLE_EQ(whole.samples_s, 2);
  EXPECT_DOUBLE_EQ(whole.in_a_row_s, 3);
}

}  // namespace
}  // namespace msabench

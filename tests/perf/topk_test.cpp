// SPDX-License-Identifier: Apache-2.0
#include "perf/topk.h"

#include <gtest/gtest.h>

namespace msabench {
namespace {

perf_item item(const char* operation, double us, item_state state = item_state::measured) {
  perf_item i;
  i.operation = operation;
  i.state = state;
  i.time_us.median = us;
  if (state == item_state::measured || state == item_state::unverified) i.figures = perf_figures{};
  return i;
}

perf_point point() {
  perf_point p;
  p.phase = "decode";
  p.context = 8192;
  p.query_tokens = 1;
  p.topk = 16;
  p.items = {item("score", 20), item("select", 10), item("index", 24)};
  return p;
}

TEST(topk, rows_have_scores_and_selection_apart_and_in_one) {
  const auto rows = topk_rows({point()}, 1);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].topk, 16);
  EXPECT_EQ(rows[0].score_us, 20);
  EXPECT_EQ(rows[0].select_us, 10);
  EXPECT_EQ(rows[0].index_us, 24);
  EXPECT_DOUBLE_EQ(*rows[0].split_over_fused, 1.25);
  EXPECT_TRUE(rows[0].verified);
}

TEST(topk, what_is_missing_has_no_ratio) {
  perf_point p = point();
  p.items[1] = item("select", 10, item_state::failed);
  const auto rows = topk_rows({p}, 1);
  EXPECT_FALSE(rows[0].select_us);
  EXPECT_FALSE(rows[0].split_over_fused);
  EXPECT_EQ(rows[0].index_us, 24);
  p.items.clear();
  EXPECT_TRUE(topk_rows({p}, 1).empty());
  p = point();
  p.topk.reset();
  EXPECT_TRUE(topk_rows({p}, 1).empty());
}

TEST(topk, unverified_parts_and_other_clocks_are_told) {
  perf_point p = point();
  p.items[0].state = item_state::unverified;
  p.items[0].timing.sm_mhz = {1980};
  p.items[2].timing.sm_mhz = {1500};
  const auto rows = topk_rows({p}, 1);
  EXPECT_FALSE(rows[0].verified);
  EXPECT_FALSE(rows[0].split_over_fused);
}

TEST(topk, implementations_have_rows_of_their_own) {
  perf_point p = point();
  p.items.push_back(item("index", 12));
  p.items.back().implementation = 1;
  const auto rows = topk_rows({p}, 2);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].implementation, 1);
  EXPECT_EQ(rows[1].index_us, 12);
  EXPECT_FALSE(rows[1].score_us);
}

}  // namespace
}  // namespace msabench

// SPDX-License-Identifier: Apache-2.0
#include "judge/rows.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace msabench {
namespace {

TEST(rows_to_check, takes_all_where_affordable) {
  const auto c = parse_case("attend/m3/rag.draft/bf16.paged/random/s0");
  const auto rows = rows_to_check(c, "hash");
  ASSERT_EQ(static_cast<std::int64_t>(rows.size()), total_rows(c));
  EXPECT_EQ(rows.front(), 0);
  EXPECT_EQ(rows.back(), total_rows(c) - 1);
}

TEST(rows_to_check, stays_in_budget_and_keeps_the_borders) {
  const auto c = parse_case("attend/m3/q512.n4K.x2/bf16.paged/random/s0");
  const std::int64_t budget = 4'000'000;
  const auto rows = rows_to_check(c, "hash", budget);
  EXPECT_LT(static_cast<std::int64_t>(rows.size()), total_rows(c));
  EXPECT_LE(static_cast<std::int64_t>(rows.size()) * cost_triples(c) / total_rows(c), budget);
  EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end()));
  EXPECT_EQ(std::adjacent_find(rows.begin(), rows.end()), rows.end());
  for (const std::int64_t must : {0, 511, 512, 1023})
    EXPECT_TRUE(std::binary_search(rows.begin(), rows.end(), must)) << must;
  for (const auto row : rows) EXPECT_TRUE(row >= 0 && row < 1024);
}

// Rows that an implementation could know beforehand are not enough.
TEST(rows_to_check, draws_rows_from_the_outputs) {
  const auto c = parse_case("attend/m3/q512.n4K.x2/bf16.paged/random/s0");
  const auto one = rows_to_check(c, "hash one"), other = rows_to_check(c, "hash two");
  EXPECT_NE(one, other);
  EXPECT_EQ(one, rows_to_check(c, "hash one"));
}

TEST(rows_to_check, works_without_rows) {
  EXPECT_TRUE(rows_to_check(parse_case("attend/m3/rag.idle/bf16.paged/random/s0"), "").empty());
}

}  // namespace
}  // namespace msabench

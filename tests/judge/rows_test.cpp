// SPDX-License-Identifier: Apache-2.0
#include "judge/rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "tests/judge/attend_world.h"

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

// As long as there are fewer sequences than rows to spend: of each the last row, of the batch the first and the last one.
TEST(rows_to_check, covers_every_sequence) {
  for (const char* name :
       {"attend/m3/q64.n4K.x64/bf16.paged/random/s0", "dense/m3.tp4/q256.n300.x40/bf16.paged/random/s0"}) {
    const auto c = parse_case(name);
    const auto rows = rows_to_check(c, "hash", 20'000'000);
    ASSERT_LT(static_cast<std::int64_t>(rows.size()), total_rows(c)) << name;
    EXPECT_EQ(rows.front(), 0) << name;
    std::int64_t end = 0;
    for (const auto& s : sequences(c)) {
      end += s.q_len;
      EXPECT_TRUE(std::binary_search(rows.begin(), rows.end(), end - 1)) << name << " row " << end - 1;
    }
  }
}

TEST(rows_to_check, covers_both_sides_of_block_borders) {
  const auto c = parse_case("attend/m3.tp4/q1K.n1K/bf16.paged/random/s0");
  const auto rows = rows_to_check(c, "hash", 1'000'000);
  ASSERT_LT(static_cast<std::int64_t>(rows.size()), total_rows(c));
  for (std::int64_t border = 128; border < 1024; border += 128)
    for (const std::int64_t row : {border - 1, border})
      EXPECT_TRUE(std::binary_search(rows.begin(), rows.end(), row)) << row;
}

// A fault in one row that is in nobody's plan: whoever changes his outputs changes which rows are drawn, so that sooner or
// later it is found, and only by a row that was drawn.
TEST(rows_to_check, finds_a_lone_wrong_row_by_what_is_drawn) {
  using namespace judge::test;
  attend_world w({.hq = 2, .hkv = 1, .d = 16, .block = 8, .topk = 4, .sequences = {{96, 200}}}, "random");
  w.fill_random(7);
  const auto c = parse_case("attend/h2x1.d16.b8.k4.l1.i0/q96.n200/bf16.contig/random/s0");
  const std::int64_t budget = cost_triples(c) / 4;
  std::set<std::int64_t> planned;
  for (int i = 0; i < 40; ++i) {
    const auto rows = rows_to_check(c, "outputs " + std::to_string(i), budget);
    const std::set<std::int64_t> now(rows.begin(), rows.end());
    if (i == 0) planned = now;
    std::erase_if(planned, [&](std::int64_t row) { return !now.contains(row); });
  }
  std::int64_t lone = 40;
  while (planned.contains(lone)) ++lone;
  variant wrong;
  wrong.edit_keys = [&](std::int64_t row, std::int64_t, std::vector<std::int64_t>& keys) {
    if (row == lone) keys.resize(keys.size() / 2);
  };
  w.run(wrong);
  const launch outputs = w.outputs();
  int found = 0;
  constexpr int runs = 300;
  for (int i = 0; i < runs; ++i) {
    const auto rows = rows_to_check(c, "outputs " + std::to_string(i), budget);
    const bool drawn = std::binary_search(rows.begin(), rows.end(), lone);
    const auto expected = judge::expect(w.subject(), rows);
    EXPECT_EQ(passes(expected->check(outputs, 0, 0)), !drawn) << i;
    EXPECT_EQ(expected->rows_checked(), std::ssize(rows));
    found += drawn;
  }
  // An eighth of a quarter of the rows is drawn each time: one in 32.
  EXPECT_GE(found, 1);
  EXPECT_LT(found, runs);
}

TEST(rows_to_check, works_without_rows) {
  EXPECT_TRUE(rows_to_check(parse_case("attend/m3/rag.idle/bf16.paged/random/s0"), "").empty());
}

}  // namespace
}  // namespace msabench

// SPDX-License-Identifier: Apache-2.0
#include "perf/whole_estimate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace msabench {
namespace {

constexpr std::array<std::int64_t, 2> contexts = {8, 10};
const std::array<std::string, 1> mine = {"mine"};

perf_item item(const char* operation, double us, item_state state = item_state::measured) {
  perf_item i;
  i.operation = operation;
  i.state = state;
  i.time_us.median = us;
  i.work.useful_flops = 1000;
  if (state == item_state::measured || state == item_state::unverified) i.figures = perf_figures{};
  return i;
}

// msa and dense of the chunks (4, 4), (4, 8) and (2, 10).
perf_run three_chunks() {
  perf_run run;
  for (const auto& c : chunks_of(contexts, 4)) {
    perf_point p;
    p.context = c.context;
    p.query_tokens = c.query_tokens;
    const auto us = static_cast<double>(c.context);
    p.items = {item("msa", us), item("dense", us * us)};
    run.points.push_back(p);
  }
  return run;
}

perf_whole find(const std::vector<perf_whole>& all, std::int64_t context, const char* operation) {
  const auto at =
      std::ranges::find_if(all, [&](const perf_whole& w) { return w.context == context && w.operation == operation; });
  return at == all.end() ? perf_whole{} : *at;
}

TEST(whole, chunks_are_those_of_all_sequences_each_once) {
  EXPECT_EQ(chunks_of(contexts, 4), (std::vector<whole_chunk>{{4, 4}, {4, 8}, {2, 10}}));
  EXPECT_EQ(chunks_of(std::array<std::int64_t, 1>{3}, 4), (std::vector<whole_chunk>{{3, 3}}));
}

TEST(whole, sums_are_over_all_chunks) {
  const auto all = wholes_of(three_chunks(), contexts, 4, 1, mine);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(find(all, 8, "msa").time_us, 12);
  EXPECT_EQ(find(all, 8, "dense").time_us, 80);
  EXPECT_EQ(find(all, 10, "msa").time_us, 22);
  EXPECT_EQ(find(all, 10, "msa").useful_flops, 3000);
  EXPECT_EQ(find(all, 10, "dense").time_us, 180);
  EXPECT_DOUBLE_EQ(*find(all, 10, "msa").gain_over_dense, 180.0 / 22);
  EXPECT_EQ(find(all, 10, "msa").dense, "mine");
  EXPECT_TRUE(find(all, 10, "msa").verified);
  EXPECT_FALSE(find(all, 10, "msa").back_to_back_us);
}

TEST(whole, without_one_chunk_there_is_no_sum) {
  for (const item_state missing : {item_state::failed, item_state::not_run, item_state::busy}) {
    perf_run run = three_chunks();
    run.points[1].items[0] = item("msa", 8, missing);
    const auto all = wholes_of(run, contexts, 4, 1, mine);
    EXPECT_FALSE(find(all, 8, "msa").time_us);
    EXPECT_FALSE(find(all, 8, "msa").gain_over_dense);
    EXPECT_TRUE(find(all, 8, "msa").partial());
    EXPECT_EQ(find(all, 8, "msa").measured, 1);
    EXPECT_EQ(find(all, 10, "msa").measured, 2);
    EXPECT_EQ(find(all, 10, "dense").time_us, 180);
  }
  perf_run run = three_chunks();
  run.points.pop_back();
  const auto all = wholes_of(run, contexts, 4, 1, mine);
  EXPECT_EQ(find(all, 8, "msa").time_us, 12);
  EXPECT_TRUE(find(all, 10, "dense").partial());
}

TEST(whole, chunks_that_both_sides_have_are_told_where_some_lack) {
  perf_run run = three_chunks();
  EXPECT_FALSE(find(wholes_of(run, contexts, 4, 1, mine), 10, "msa").common);
  run.points[1].items[1] = item("dense", 64, item_state::not_run);
  for (auto& p : run.points)
    for (auto& i : p.items) i.in_a_row.runs = {{.time_us = 3 * i.time_us.median}};
  const auto common = find(wholes_of(run, contexts, 4, 1, mine), 10, "msa").common;
  ASSERT_TRUE(common);
  EXPECT_EQ(common->contexts, (std::vector<std::int64_t>{4, 10}));
  EXPECT_EQ(common->time_us, 14);
  EXPECT_EQ(common->dense_us, 116);
  EXPECT_EQ(common->back_to_back_us, 42);
  EXPECT_EQ(common->dense_back_to_back_us, 348);
  EXPECT_EQ(common->dense, "mine");
  EXPECT_FALSE(find(wholes_of(run, contexts, 4, 1, mine), 10, "msa").gain_over_dense);
  EXPECT_FALSE(find(wholes_of(run, contexts, 4, 1, mine), 10, "dense").common);
  // Without a figure back to back of each, and without chunks at other clocks.
  run.points[0].items[0].in_a_row.runs.clear();
  EXPECT_FALSE(find(wholes_of(run, contexts, 4, 1, mine), 10, "msa").common->back_to_back_us);
  run.points[2].items[0].timing.sm_mhz = {1980};
  run.points[2].items[1].timing.sm_mhz = {1400};
  EXPECT_EQ(find(wholes_of(run, contexts, 4, 1, mine), 10, "msa").common->contexts, std::vector<std::int64_t>{4});
  run.points[0].items[1] = item("dense", 16, item_state::not_run);
  EXPECT_FALSE(find(wholes_of(run, contexts, 4, 1, mine), 10, "msa").common);
}

TEST(whole, of_several_dense_the_one_with_most_chunks_in_common_counts) {
  const std::array<std::string, 2> both = {"mine", "other"};
  perf_run run = three_chunks();
  for (auto& p : run.points) {
    p.items.push_back(item("dense", 2 * p.items[1].time_us.median));
    p.items.back().implementation = 1;
  }
  run.points[1].items[0] = item("msa", 8, item_state::not_run);
  EXPECT_EQ(find(wholes_of(run, contexts, 4, 1, both), 10, "msa").common->dense, "mine");
  run.points[2].items[1] = item("dense", 100, item_state::not_run);
  const auto common = find(wholes_of(run, contexts, 4, 1, both), 10, "msa").common;
  EXPECT_EQ(common->dense, "other");
  EXPECT_EQ(common->dense_us, 232);
}

// 17 chunks of 4 tokens; msa takes 100 + its context, dense ten times its context, and `other` half of that in the second half.
perf_run long_run(const std::vector<std::int64_t>& measured) {
  perf_run run;
  for (const std::int64_t end : measured) {
    perf_point p;
    p.context = end;
    p.query_tokens = 4;
    const auto x = static_cast<double>(end);
    p.items = {item("msa", 100 + x), item("dense", 10 * x), item("dense", end > 34 ? 5 * x : 20 * x)};
    p.items[2].implementation = 1;
    for (auto& i : p.items) i.in_a_row.runs = {{.time_us = 2 * i.time_us.median}};
    run.points.push_back(p);
  }
  return run;
}
constexpr std::array<std::int64_t, 1> seventeen = {68};
const std::array<std::string, 2> two = {"mine", "other"};

TEST(whole, an_estimate_is_by_lines_between_chunks) {
  const auto all = wholes_of(long_run({4, 36, 68}), seventeen, 4, 1, two);
  const perf_whole msa = find(all, 68, "msa");
  ASSERT_TRUE(msa.estimate);
  EXPECT_TRUE(msa.partial());
  EXPECT_FALSE(msa.time_us);
  EXPECT_EQ(msa.estimate->contexts, (std::vector<std::int64_t>{4, 36, 68}));
  EXPECT_NEAR(msa.estimate->time_us, 17 * 100 + 4 * 17 * 18 / 2, 1e-9);
  EXPECT_NEAR(*msa.estimate->back_to_back_us, 2 * msa.estimate->time_us, 1e-9);
  EXPECT_NEAR(msa.estimate->deviation, 0, 1e-12);
  EXPECT_NEAR(find(all, 68, "dense").estimate->time_us, 10 * 4 * 17 * 18 / 2, 1e-9);
  // Of dense the fastest at each: 40, 180, 340.
  EXPECT_EQ(msa.estimate->dense, "mine, other");
  EXPECT_EQ(msa.estimate->dense_chunks, 3);
  EXPECT_NEAR(*msa.estimate->dense_us, 40 + 7 * 110 + 180 + 7 * 260 + 340, 1e-9);
  EXPECT_NEAR(*msa.estimate->gain_over_dense, *msa.estimate->dense_us / msa.estimate->time_us, 1e-12);
  EXPECT_NEAR(*msa.estimate->back_to_back_gain, *msa.estimate->gain_over_dense, 1e-12);
}

TEST(whole, an_estimate_says_how_far_it_may_be_off) {
  perf_run run = long_run({4, 36, 68});
  run.points[1].items[0].in_a_row.runs[0].time_us = 200;  // the line is at 272
  const auto msa = find(wholes_of(run, seventeen, 4, 1, two), 68, "msa");
  EXPECT_NEAR(msa.estimate->deviation, 72.0 / 200, 1e-12);
}

TEST(whole, an_estimate_needs_both_ends_and_one_between) {
  for (const std::vector<std::int64_t>& few : {std::vector<std::int64_t>{4, 68}, {4, 36, 64}, {8, 36, 68}, {}})
    EXPECT_FALSE(find(wholes_of(long_run(few), seventeen, 4, 1, two), 68, "msa").estimate);
  perf_run run = long_run({4, 36, 68});
  for (std::size_t i : {1, 2}) run.points[1].items[i] = item("dense", 1, item_state::not_run);
  run.points[1].items[0].in_a_row.runs.clear();
  const auto e = find(wholes_of(run, seventeen, 4, 1, two), 68, "msa").estimate;
  ASSERT_TRUE(e);
  EXPECT_FALSE(e->dense_us);
  EXPECT_FALSE(e->gain_over_dense);
  EXPECT_FALSE(e->back_to_back_us);
}

TEST(whole, an_estimate_at_other_clocks_has_its_gain_back_to_back_alone) {
  perf_run run = long_run({4, 36, 68});
  run.points[1].items[0].timing.sm_mhz = {1980};
  run.points[1].items[2].timing.sm_mhz = {1400};
  const auto e = find(wholes_of(run, seventeen, 4, 1, two), 68, "msa").estimate;
  EXPECT_FALSE(e->gain_over_dense);
  EXPECT_TRUE(e->back_to_back_gain);
}

TEST(whole, what_is_measured_in_all_needs_no_estimate) {
  for (const auto& w : wholes_of(three_chunks(), contexts, 4, 1, mine)) EXPECT_FALSE(w.estimate);
}

TEST(whole, a_shorter_last_chunk_counts_by_its_tokens) {
  const std::array<whole_chunk, 3> chunks = {whole_chunk{4, 4}, {4, 8}, {2, 10}};
  EXPECT_NEAR(sum_by_lines(chunks, {{0, 2}, {40, 80}}), 40 + 4 * (10 + 30 * 4.0 / 6) + 80, 1e-9);
  EXPECT_EQ(largest_deviation(chunks, {{0, 2}, {40, 80}}), 0);
}

TEST(whole, one_unverified_chunk_makes_it_unverified) {
  perf_run run = three_chunks();
  run.points[0].items[1] = item("dense", 16, item_state::unverified);
  const auto all = wholes_of(run, contexts, 4, 1, mine);
  EXPECT_FALSE(find(all, 8, "dense").verified);
  EXPECT_EQ(find(all, 8, "dense").time_us, 80);
  EXPECT_TRUE(find(all, 8, "msa").verified);
}

TEST(whole, back_to_back_is_a_sum_of_its_own) {
  perf_run run = three_chunks();
  for (auto& p : run.points) p.items[0].in_a_row.runs = {{.time_us = 2 * p.items[0].time_us.median}};
  EXPECT_EQ(find(wholes_of(run, contexts, 4, 1, mine), 10, "msa").back_to_back_us, 44);
  EXPECT_EQ(find(wholes_of(run, contexts, 4, 1, mine), 10, "msa").time_us, 22);
  run.points[2].items[0].in_a_row.runs.clear();
  EXPECT_FALSE(find(wholes_of(run, contexts, 4, 1, mine), 10, "msa").back_to_back_us);
  EXPECT_EQ(find(wholes_of(run, contexts, 4, 1, mine), 8, "msa").back_to_back_us, 24);
}

TEST(whole, chunks_at_different_clocks_have_no_gain) {
  perf_run run = three_chunks();
  run.points[1].items[0].timing.sm_mhz = {1980};
  run.points[1].items[1].timing.sm_mhz = {1400};
  const auto all = wholes_of(run, contexts, 4, 1, mine);
  EXPECT_FALSE(find(all, 8, "msa").gain_over_dense);
  EXPECT_EQ(find(all, 8, "msa").time_us, 12);
}

TEST(whole, order_has_each_position_once_and_spreads) {
  EXPECT_TRUE(spread_order(0).empty());
  EXPECT_EQ(spread_order(1), (std::vector<std::size_t>{0}));
  EXPECT_EQ(spread_order(5), (std::vector<std::size_t>{0, 4, 2, 1, 3}));
  for (const std::size_t n : {2, 3, 16, 127, 128}) {
    auto order = spread_order(n);
    // After a third of them no gap is wider than eight times the even one.
    std::vector<std::size_t> first(order.begin(), order.begin() + static_cast<std::ptrdiff_t>((n + 2) / 3));
    std::ranges::sort(first);
    for (std::size_t i = 1; i < first.size(); ++i) EXPECT_LE(first[i] - first[i - 1], 8u + (first.size() == 2 ? n : 0));
    std::ranges::sort(order);
    for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(order[i], i);
  }
}

}  // namespace
}  // namespace msabench

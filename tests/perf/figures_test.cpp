// SPDX-License-Identifier: Apache-2.0
#include "perf/figures.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>

namespace msabench {
namespace {

perf_ceilings limits() {
  perf_ceilings c;
  c.flops["fp32"] = 100;
  c.bytes_per_s = 10;
  return c;
}

perf_work amount(double flops, double bytes) { return {flops, {}, bytes, 2 * bytes}; }

TEST(figures, rates_are_useful_flops_and_compulsory_bytes) {
  const perf_figures f = figures_of(amount(400, 20), limits(), fp32, 8);
  EXPECT_EQ(f.flops_per_s, 50);
  EXPECT_EQ(f.bytes_per_s, 2.5);
  EXPECT_EQ(f.roofline_s, 4);
  EXPECT_EQ(f.bound, "flops");
  EXPECT_EQ(f.efficiency, 0.5);
}

TEST(figures, the_slower_limit_binds) {
  EXPECT_EQ(figures_of(amount(400, 60), limits(), fp32, 8).bound, "bytes");
  EXPECT_EQ(figures_of(amount(400, 60), limits(), fp32, 8).roofline_s, 6);
}

TEST(figures, no_efficiency_above_what_a_ceiling_can_be_wrong_by) {
  EXPECT_EQ(figures_of(amount(105, 0), limits(), fp32, 1).efficiency, 1.05);
  EXPECT_FALSE(figures_of(amount(106, 0), limits(), fp32, 1).efficiency);
  EXPECT_GT(figures_of(amount(106, 0), limits(), fp32, 1).roofline_s, 0);
}

TEST(figures, no_efficiency_without_a_peak) {
  EXPECT_FALSE(figures_of(amount(1, 1), limits(), bf16, 1).efficiency);
  EXPECT_FALSE(figures_of(amount(1, 1), {}, fp32, 1).efficiency);
  EXPECT_EQ(figures_of(amount(1, 1), limits(), bf16, 1).flops_per_s, 1);
}

perf_item item(const char* operation, int implementation, double us, item_state state = item_state::measured) {
  perf_item i;
  i.operation = operation;
  i.implementation = implementation;
  i.state = state;
  i.time_us.median = us;
  if (state == item_state::measured || state == item_state::unverified) {
    i.figures = perf_figures{};
    i.figures->roofline_s = us / 4e6;
  }
  return i;
}

TEST(figures, gain_is_over_the_fastest_dense_and_names_it) {
  perf_point p;
  p.items = {item("msa", 0, 10), item("dense", 0, 100), item("dense", 1, 60), item("attend", 0, 4)};
  compare_items(p, std::array<std::string, 2>{"a", "b"});
  EXPECT_EQ(p.items[0].figures->gain_over_dense, 6);
  EXPECT_EQ(p.items[0].figures->dense, "b");
  EXPECT_EQ(p.items[0].figures->gain_limit, 6);
  EXPECT_TRUE(p.items[0].figures->gain_verified);
  EXPECT_EQ(*p.items[1].figures->gain_over_dense, 0.6);
  EXPECT_EQ(*p.items[3].figures->share_of_msa, 0.4);
  EXPECT_FALSE(p.items[0].figures->share_of_msa);
  EXPECT_EQ(*p.items[1].figures->against, 0.6);
}

TEST(figures, failed_items_are_no_baseline) {
  perf_point p;
  p.items = {item("msa", 0, 10), item("dense", 0, 100), item("dense", 1, 1, item_state::failed)};
  compare_items(p, std::array<std::string, 2>{"a", "b"});
  EXPECT_EQ(p.items[0].figures->gain_over_dense, 10);
  EXPECT_FALSE(p.items[2].figures);
}

TEST(figures, a_gain_over_unverified_outputs_says_so) {
  perf_point p;
  p.items = {item("msa", 0, 10), item("dense", 0, 100, item_state::unverified)};
  compare_items(p, std::array<std::string, 1>{"a"});
  EXPECT_EQ(p.items[0].figures->gain_over_dense, 10);
  EXPECT_FALSE(p.items[0].figures->gain_verified);
}

TEST(figures, stages_and_merges_have_no_gain_over_dense) {
  perf_point p;
  p.items = {item("combine", 0, 1), item("score", 0, 1), item("dense", 0, 100)};
  compare_items(p, std::array<std::string, 1>{"a"});
  EXPECT_FALSE(p.items[0].figures->gain_over_dense);
  EXPECT_FALSE(p.items[1].figures->gain_over_dense);
}

TEST(crossover, is_where_the_ratio_passes_one) {
  const std::array<context_ratio, 3> r = {{{1024, 4}, {4096, 0.25}, {8192, 0.1}}};
  const auto at = crossover_of(r);
  ASSERT_TRUE(at.context);
  EXPECT_NEAR(*at.context, 2048, 1e-6);
  EXPECT_FALSE(at.at_most);
}

TEST(crossover, last_change_counts) {
  const std::array<context_ratio, 4> r = {{{1024, 0.5}, {2048, 2}, {8192, 0.5}, {16384, 0.2}}};
  EXPECT_NEAR(*crossover_of(r).context, 4096, 1e-6);
}

TEST(crossover, at_the_first_or_nowhere) {
  const std::array<context_ratio, 2> always = {{{1024, 0.5}, {2048, 0.2}}}, never = {{{1024, 0.5}, {2048, 1.2}}};
  EXPECT_TRUE(crossover_of(always).at_most);
  EXPECT_EQ(*crossover_of(always).context, 1024);
  EXPECT_FALSE(crossover_of(never).context);
  EXPECT_FALSE(crossover_of({}).context);
}

}  // namespace
}  // namespace msabench

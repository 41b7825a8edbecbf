// SPDX-License-Identifier: Apache-2.0
#include "perf/figures.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>

#include "core/case.h"

namespace msabench {
namespace {

perf_ceilings limits() {
  perf_ceilings c;
  c.flops["fp32"] = 100;
  c.bytes_per_s = 10;
  return c;
}

perf_work amount(double flops, double bytes, double index_flops = 0) {
  return {flops, index_flops, {}, bytes, 2 * bytes};
}

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

TEST(figures, flops_of_the_index_branch_count_at_the_peak_of_its_operands) {
  perf_ceilings c = limits();
  c.flops["e4m3"] = 200;
  EXPECT_EQ(roofline_of(amount(400, 0, 300), c, {e4m3, fp32})->seconds, 300 / 200.0 + 100 / 100.0);
  EXPECT_EQ(roofline_of(amount(400, 0, 400), c, {e4m3, fp32})->seconds, 2);
  EXPECT_EQ(roofline_of(amount(400, 0, 300), c, fp32)->seconds, 4);
}

TEST(figures, a_peak_is_missed_only_where_it_is_needed) {
  EXPECT_FALSE(roofline_of(amount(400, 0, 300), limits(), {e4m3, fp32}));
  EXPECT_EQ(roofline_of(amount(400, 0), limits(), {e4m3, fp32})->seconds, 4);
  perf_ceilings c = limits();
  c.flops = {{"e4m3", 200}};
  EXPECT_EQ(roofline_of(amount(400, 0, 400), c, {e4m3, fp32})->seconds, 2);
  EXPECT_FALSE(roofline_of(amount(400, 0, 399), c, {e4m3, fp32}));
}

TEST(figures, operands_are_as_wide_as_the_wider_one) {
  const auto of = [](const char* name) {
    const case_spec c = parse_case(name);
    return operands_of(make_problem(c), c.type);
  };
  EXPECT_EQ(of("msa/m3/q1.n8K/bf16.paged/random/fp8/s0").index, e4m3);
  EXPECT_EQ(of("msa/m3/q1.n8K/bf16.paged/random/fp8/s0").rest, bf16);
  EXPECT_EQ(of("msa/m3/q1.n8K/bf16.paged/random/fp8idx/s0").index, e4m3);
  EXPECT_EQ(of("attend/m3/q1.n8K/bf16.paged/random/fp8/s0").rest, bf16);
  EXPECT_EQ(of("index/m3/q1.n8K/bf16.paged/random/s0").index, bf16);
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

TEST(figures, times_at_different_clocks_are_not_compared) {
  perf_point p;
  p.items = {item("msa", 0, 10), item("dense", 0, 100), item("msa", 1, 20)};
  p.items[0].timing.sm_mhz = {1980};
  p.items[1].timing.sm_mhz = {1500};
  p.items[2].timing.sm_mhz = {1970};
  compare_items(p, std::array<std::string, 2>{"a", "b"});
  EXPECT_FALSE(p.items[0].figures->gain_over_dense);
  EXPECT_NE(p.items[0].figures->gain_refused.find("1500"), std::string::npos);
  EXPECT_EQ(p.items[0].figures->against, 2);
  EXPECT_TRUE(p.items[0].figures->against_refused.empty());
  EXPECT_EQ(p.items[1].figures->gain_over_dense, 1);
  p.items[2].timing.sm_mhz = {1500};
  compare_items(p, std::array<std::string, 2>{"a", "b"});
  EXPECT_EQ(p.items[2].figures->gain_over_dense, 5);
  EXPECT_FALSE(p.items[2].figures->against_refused.empty());
}

TEST(figures, launches_back_to_back_are_compared_with_their_like) {
  perf_point p;
  p.items = {item("msa", 0, 10), item("dense", 0, 100), item("dense", 1, 60), item("msa", 1, 10)};
  p.items[0].in_a_row.runs = {{.time_us = 8}, {.time_us = 9}, {.time_us = 9}};
  p.items[1].in_a_row.runs = {{.time_us = 90}};
  p.items[3].in_a_row.reason = "no time";
  compare_items(p, std::array<std::string, 2>{"a", "b"});
  EXPECT_EQ(p.items[0].figures->gain_over_dense, 6);
  EXPECT_EQ(p.items[0].figures->back_to_back_gain, 10);
  EXPECT_FALSE(p.items[0].figures->back_to_back_against);
  EXPECT_FALSE(p.items[3].figures->back_to_back_gain);
  EXPECT_EQ(p.items[3].figures->gain_over_dense, 6);
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

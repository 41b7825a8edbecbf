// SPDX-License-Identifier: Apache-2.0
// The page that qualify leaves: what it says follows from the records, and nothing that has no number gets a bar.
#include "reports/datasheet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "reports/bar_chart.h"
#include "sample_runs.h"

namespace msabench {
namespace {

std::size_t count(const std::string& text, std::string_view part) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

perf_item measured(const std::string& operation, double time_us, double efficiency) {
  perf_item i;
  i.operation = operation;
  i.name = operation + "/m3/q1.n128K/bf16.paged/random/s0";
  i.state = item_state::measured;
  i.time_us.median = time_us;
  i.time_us.count = 10;
  i.decided = verdict::pass;
  perf_figures f;
  f.roofline_s = time_us * 1e-6 * efficiency;
  f.bound = "bytes";
  f.efficiency = efficiency;
  i.figures = f;
  return i;
}

perf_run decode_run() {
  perf_run run;
  run.suite = "decode";
  run.implementations.push_back({"cpu", "0.1", "kernels", "", ""});
  perf_point p;
  p.phase = "decode";
  p.query_tokens = 1;
  p.context = 131072;
  p.selection = "random";
  p.items = {measured("dense", 8000, 0.5), measured("msa", 1000, 0.63), measured("index", 700, 0.75)};
  p.items[1].figures->gain_over_dense = 8;
  p.items[1].figures->gain_limit = 10;
  p.items[2].figures->share_of_msa = 0.7;
  run.points.push_back(p);
  return run;
}

TEST(bar_chart, lengths_are_proportional) {
  const std::string chart = bar_chart({{"a", 4, "four", -1}, {"bcd", 2, "two", -1}, {"e", 0, "none", -1}}, 4, 0, 8);
  EXPECT_EQ(chart, "a    ████████ four\nbcd  ████     two\ne             none\n");
}

TEST(bar_chart, small_values_have_a_bar_and_marks_are_always_seen) {
  const std::string chart = bar_chart({{"a", 1e-9, "", 1}, {"b", 0.5, "", 0.75}, {"c", 1, "", 0.25}}, 1, 3, 4);
  EXPECT_EQ(chart, "a    ▏  | \nb    ██ | \nc    █|██ \n");
}

TEST(bar_chart, nothing_is_an_empty_chart_and_zeros_divide_by_nothing) {
  EXPECT_EQ(bar_chart({}, 0), "");
  EXPECT_EQ(bar_chart({{"a", 0, "x", -1}}, 0, 0, 2), "a     x\n");
}

TEST(datasheet, verdicts_come_first_and_charts_follow) {
  const run_record clean = clean_run();
  const std::string page = datasheet_text({clean, {decode_run()}, "", "ratio 28.55\n"});
  EXPECT_LT(page.find("**Right? PASSED**"), page.find("## Dense attention and MSA"));
  EXPECT_NE(page.find("**Fast? MEASURED: 3 of 3 figures"), std::string::npos) << page;
  // Half of dense's time is the least that the limits allow, and stands there.
  EXPECT_NE(page.find("decode 128K dense  ████████████████████|███████████████████ 8.00 ms"), std::string::npos)
      << page;
  EXPECT_NE(page.find("8x faster (by the limits: 10x)"), std::string::npos);
  EXPECT_NE(page.find("63 % of the memory's speed"), std::string::npos);
  EXPECT_NE(page.find("70 %, 700 us"), std::string::npos);
  EXPECT_NE(page.find("ratio 28.55"), std::string::npos);
  EXPECT_EQ(count(page, "```") % 2, 0U);
  EXPECT_EQ(count(page, "\n# "), 0U) << "one title only";
}

TEST(datasheet, what_was_not_judged_right_has_no_bar) {
  perf_run run = decode_run();
  run.points[0].items[1].state = item_state::failed;
  run.points[0].items[1].figures.reset();
  run.points[0].items[1].reason = "K1 out at row 0";
  run.points[0].items[2].state = item_state::unverified;
  const run_record clean = clean_run();
  const std::string page = datasheet_text({clean, {run}, "", ""});
  EXPECT_NE(page.find("**Fast? MEASURED IN PART: 1 of 3 figures"), std::string::npos) << page;
  EXPECT_EQ(page.find("msa        "), std::string::npos);
  EXPECT_EQ(page.find("faster"), std::string::npos);
  EXPECT_NE(page.find("K1 out at row 0"), std::string::npos);
}

TEST(datasheet, without_speed_that_is_said) {
  const run_record mixed = mixed_run();
  const std::string page = datasheet_text({mixed, {}, "the machine is busy: other processes use 45 %", ""});
  EXPECT_NE(page.find("**Fast? NOT MEASURED: the machine is busy"), std::string::npos) << page;
  EXPECT_EQ(page.find("█"), std::string::npos);
  perf_run run = decode_run();
  for (auto& i : run.points[0].items) i.state = item_state::busy;
  for (auto& i : run.points[0].items) i.figures.reset();
  EXPECT_NE(datasheet_text({mixed, {run}, "", ""}).find("NOT MEASURED: no figure"), std::string::npos);
}

}  // namespace
}  // namespace msabench

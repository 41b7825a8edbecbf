// SPDX-License-Identifier: Apache-2.0
// Speed runs as people and programs read them: what has no number shows none, and what is not verified says so.
#include "reports/perf.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/verdict.h"

namespace msabench {
namespace {

perf_item item(const char* operation, item_state state, const char* reason = "") {
  perf_item i;
  i.name = std::string(operation) + "/m3/q1.n8K/bf16.paged/random/s0";
  i.definition_sha256 = std::string(64, 'a');
  i.operation = operation;
  i.state = state;
  i.reason = reason;
  i.timing.time_us.assign(12, 1234.0);
  i.time_us = summarize(i.timing.time_us);
  i.converged = true;
  i.rows_checked = i.rows_total = 1;
  if (state == item_state::measured || state == item_state::unverified) {
    i.figures = perf_figures{};
    i.work.useful_flops = 1;
    i.figures->flops_per_s = 5e10;
    i.figures->bytes_per_s = 7e9;
    i.figures->efficiency = 0.625;
    i.figures->bound = "bytes";
  }
  return i;
}

perf_run run_of(std::vector<perf_item> items) {
  perf_run run;
  run.suite = "decode";
  run.cache = "cold";
  run.implementations = {{"mine", "1", "", "", ""}};
  run.argv = {"msabench", "perf"};
  perf_point p;
  p.phase = "decode";
  p.query_tokens = 1;
  p.context = 8192;
  p.selection = "random";
  p.cold = true;
  p.items = std::move(items);
  run.points = {p};
  return run;
}

std::string shown(const perf_run& run) { return perf_point_text(run, run.points[0]) + perf_summary_text(run); }

TEST(perf_report, a_measured_item_is_a_row) {
  const std::string text = shown(run_of({item("attend", item_state::measured)}));
  for (const char* part : {"| attend", "1.23 ms", "12 |", "50 |", "0.62 bytes", "1 of 1 rows", "MEASURED"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  EXPECT_EQ(text.find("against other"), std::string::npos);
}

TEST(perf_report, one_sample_has_no_interval) {
  perf_item once = item("attend", item_state::measured);
  once.timing.time_us.resize(1);
  once.time_us = summarize(once.timing.time_us);
  once.converged = false;
  const std::string text = shown(run_of({once}));
  EXPECT_NE(text.find("- ! "), std::string::npos) << text;
  EXPECT_EQ(text.find("0.0 %"), std::string::npos) << text;
}

TEST(perf_report, without_a_number_there_is_no_row) {
  for (const auto& [state, word] : {std::pair{item_state::failed, "**FAILED** because"},
                                    {item_state::busy, "**BUSY** because"},
                                    {item_state::unsupported, "**UNSUPPORTED** because"},
                                    {item_state::not_run, "**NOT-RUN** because"}}) {
    const std::string text = shown(run_of({item("attend", state, "because")}));
    EXPECT_EQ(text.find("| attend"), std::string::npos) << text;
    EXPECT_EQ(text.find("1.23 ms"), std::string::npos) << text;
    EXPECT_NE(text.find(word), std::string::npos) << text;
    EXPECT_EQ(text.find("\nMEASURED"), std::string::npos) << text;
  }
}

TEST(perf_report, unverified_numbers_are_marked) {
  const std::string text = shown(run_of({item("attend", item_state::unverified, "nobody knows")}));
  EXPECT_NE(text.find(" NO |"), std::string::npos) << text;
  EXPECT_NE(text.find("**UNVERIFIED** nobody knows"), std::string::npos);
  EXPECT_EQ(text.find("\nMEASURED"), std::string::npos);
}

TEST(perf_report, gains_over_unverified_outputs_have_a_question_mark) {
  perf_run run = run_of({item("msa", item_state::measured)});
  run.points[0].items[0].figures->gain_over_dense = 6.5;
  EXPECT_NE(shown(run).find("6.5x ?"), std::string::npos);
  run.points[0].items[0].figures->gain_verified = true;
  EXPECT_EQ(shown(run).find("6.5x ?"), std::string::npos);
}

TEST(perf_report, limits_in_e4m3_stand_beside_the_others) {
  perf_run run = run_of({item("attend", item_state::measured)});
  perf_ceilings& c = run.points[0].ceilings;
  c.bytes_per_s = 4e12;
  c.flops = {{"bf16", 8e14}, {"fp16", 8e14}};
  EXPECT_NE(shown(run).find("limits: 800.00 TFLOP/s, 4.00 TB/s"), std::string::npos) << shown(run);
  c.flops["e4m3"] = 1.5e15;
  EXPECT_NE(shown(run).find("limits: 800.00 TFLOP/s, 1500.00 TFLOP/s in e4m3, 4.00 TB/s"), std::string::npos);
  c.flops["e4m3"] = 8e14;  // of a CPU, which widens its operands
  EXPECT_EQ(shown(run).find("in e4m3"), std::string::npos);
  c = {};
  c.source = "no library was found";
  EXPECT_NE(shown(run).find("limits: no library was found"), std::string::npos);
}

TEST(perf_report, foreign_text_stays_on_its_line) {
  const std::string text = shown(run_of({item("attend", item_state::failed, "a\n| b | <b>")}));
  EXPECT_EQ(text.find("\n| b"), std::string::npos);
  EXPECT_EQ(text.find("<b>"), std::string::npos);
}

TEST(perf_report, launches_back_to_back_have_a_column_where_there_are_any) {
  perf_run run = run_of({item("attend", item_state::measured), item("msa", item_state::measured)});
  EXPECT_EQ(shown(run).find("back to back"), std::string::npos);
  run.points[0].items[0].in_a_row.runs = {
      {.time_us = 2345, .enqueue_us = 3, .launches = 64, .lead = 43, .sm_mhz = 1410, .nvml_mhz = 1545, .power_w = 695}};
  run.points[0].items[1].in_a_row.reason = "no time left";
  const std::string text = shown(run);
  for (const char* part : {"| back to back |", " 2.35 ms |", "64 launches after 43", "at 1410 MHz",
                           "695 W, NVML says 1545 MHz", "not measured back to back: no time left", "| 1.23 ms |"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  EXPECT_EQ(text.find("enqueue"), std::string::npos) << text;
  run.points[0].items[0].in_a_row.runs[0].enqueue_us = 2300;
  EXPECT_NE(shown(run).find("to enqueue one"), std::string::npos);
}

TEST(perf_report, an_item_without_a_number_has_none_back_to_back_either) {
  perf_run run = run_of({item("attend", item_state::failed, "wrong")});
  run.points[0].items[0].in_a_row.runs = {{.time_us = 2345}};
  EXPECT_EQ(shown(run).find("2.35 ms"), std::string::npos);
  EXPECT_TRUE(to_report_json(run)["points"][0]["items"][0]["back_to_back_us"].is_null());
}

TEST(perf_report, refused_comparisons_and_low_clocks_are_told) {
  perf_run run = run_of({item("msa", item_state::measured)});
  run.points[0].items[0].figures->gain_refused = "taken at other clocks";
  run.points[0].items[0].low_clock = {3, 7};
  const std::string text = shown(run);
  for (const char* part : {"12 (2 low clock)", " clocks |", "no gain over dense: taken at other clocks"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(perf_report, a_whole_that_is_partial_has_no_time) {
  perf_run run = run_of({item("msa", item_state::measured)});
  perf_whole half;
  half.context = 1 << 20;
  half.chunk = 8192;
  half.operation = "msa";
  half.chunks = 128;
  half.measured = 64;
  half.verified = true;
  perf_whole full = half;
  full.operation = "dense";
  full.measured = 128;
  full.time_us = 2e6;
  full.useful_flops = 3e12;
  full.verified = false;
  half.common = perf_common_chunks{{8192, 1 << 20}, 1e4, 3e5, 1.5e4, 3e5, "cudnn"};
  half.estimate =
      perf_whole_estimate{{8192, 1 << 19, 1 << 20}, 5e5, 6e5, 0.021, "mine, cudnn", 5, 1.5e7, 1.8e7, 30, 30};
  run.wholes = {half, full};
  const std::string text = shown(run);
  for (const char* part :
       {"chunks of 8K tokens", "64 of 128 partial |      - |       - |", "2.00 s", "1.5e+03", " NO |",
        "msa by mine at 1M: no sum of a whole to compare; over 2 of 128 chunks alone, those that end at 8K, 1M, it and "
        "dense by "
        "cudnn take 10.0 ms and 300 ms, 30x; back to back 15.0 ms and 300 ms, 20x",
        "msa by mine at 1M: estimated 500 ms, back to back 600 ms by lines between 3 of 128 chunks, which lie within "
        "2.1 % of the "
        "line between their neighbours; dense likewise by 5 of 128, the fastest at each (mine, cudnn): 15.0 s, back to "
        "back 18.0 "
        "s; gain 30x, back to back 30x"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(perf_report, exit_codes_put_failures_first) {
  const auto code = [](std::vector<item_state> states, bool partial = false) {
    std::vector<perf_item> items;
    for (const item_state s : states) items.push_back(item("attend", s, "x"));
    perf_run run = run_of(std::move(items));
    run.partial = partial;
    return exit_code_of(run);
  };
  using enum item_state;
  EXPECT_EQ(code({measured, not_run, unsupported}), exit_code::ok);
  EXPECT_EQ(code({measured, busy, failed, unverified}, true), exit_code::failed);
  EXPECT_EQ(code({measured, busy, unverified}, true), exit_code::environment_refused);
  EXPECT_EQ(code({measured, unverified}), exit_code::partial);
  EXPECT_EQ(code({measured}, true), exit_code::partial);
  EXPECT_EQ(code({unsupported, not_run}), exit_code::nothing_verified);
  EXPECT_EQ(code({}), exit_code::nothing_verified);
}

TEST(perf_report, a_point_without_any_number_is_no_success) {
  perf_run run = run_of({item("attend", item_state::measured, "x")});
  run.points.push_back(run.points.front());
  EXPECT_EQ(exit_code_of(run), exit_code::ok);
  run.points.back().items = {item("attend", item_state::not_run, "x"), item("msa", item_state::unsupported, "x")};
  EXPECT_EQ(exit_code_of(run), exit_code::partial);
  run.points.back().items = {item("attend", item_state::unsupported, "x")};
  EXPECT_EQ(exit_code_of(run), exit_code::ok);
}

TEST(perf_report, json_has_no_figures_where_there_is_no_number) {
  const auto report =
      to_report_json(run_of({item("attend", item_state::measured), item("dense", item_state::failed, "wrong")}));
  const auto& items = report["points"][0]["items"];
  EXPECT_TRUE(items[0]["figures"].is_object());
  EXPECT_TRUE(items[1]["figures"].is_null());
  EXPECT_EQ(items[1]["samples"]["time_us"].size(), 12u);
  EXPECT_FALSE(report.contains("ceilings"));
  EXPECT_EQ(report["summary"]["states"]["failed"], 1);
  EXPECT_EQ(report["summary"]["exit_code"], 1);
}

TEST(perf_report, page_names_machine_command_and_limits) {
  perf_run run = run_of({item("attend", item_state::measured)});
  run.environment = {{"cpu", "a CPU"}, {"cores_available", 2}, {"os", "an OS"}};
  run.ceilings.flops["fp32"] = 3e11;
  run.ceilings.bytes_per_s = 2e10;
  run.ceilings.source = "measured";
  const std::string page = perf_markdown_text(run);
  for (const char* part : {"a CPU, 2 cores, an OS", "`msabench perf`", "300 GFLOP/s", "20 GB/s", "decode, context 8K"})
    EXPECT_NE(page.find(part), std::string::npos) << part << "\n" << page;
  EXPECT_EQ(perf_limits_text(run), "limits: 300 GFLOP/s, 20 GB/s: measured");
  EXPECT_FALSE(to_report_json(run).contains("ceilings_missing"));
}

TEST(perf_report, tells_why_no_limits_are_known) {
  perf_run run = run_of({item("attend", item_state::measured)});
  EXPECT_EQ(perf_limits_text(run), "");
  run.ceilings.bytes_per_s = 2e10;
  run.ceilings.source = "no cuBLAS was found";
  EXPECT_EQ(perf_limits_text(run), "limits: not known: no cuBLAS was found");
  EXPECT_NE(perf_markdown_text(run).find("\n- limits: not known: no cuBLAS was found\n"), std::string::npos);
  EXPECT_EQ(to_report_json(run)["ceilings_missing"], "no cuBLAS was found");
}

}  // namespace
}  // namespace msabench

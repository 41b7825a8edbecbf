// SPDX-License-Identifier: Apache-2.0
#include "reports/text.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "tests/reports/sample_runs.h"

namespace msabench {
namespace {

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

std::string all_text(const run_record& run, bool colour) {
  std::string text;
  for (const auto& c : run.cases)
    text += text_case_line(c, colour) + text_case_detail(c, colour) + text_case_checks(c, colour);
  return text + text_summary(run, colour);
}

std::vector<std::string> lines_of_text(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = text.find('\n', at);
    EXPECT_NE(end, std::string::npos) << "no line break at the end";
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

std::size_t columns(const std::string& line) {
  return static_cast<std::size_t>(
      std::count_if(line.begin(), line.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

TEST(text, fits_100_columns_but_for_what_is_copied) {
  for (const auto& [name, run] : sample_runs())
    for (const auto& line : lines_of_text(all_text(run, false)))
      EXPECT_TRUE(has(line, "reproduce: ") || columns(line) <= 100) << name << ": " << line;
}

TEST(text, colours_change_nothing_but_colour) {
  const std::regex escape("\x1b\\[[0-9]*m");
  for (const auto& [name, run] : sample_runs()) {
    const auto coloured = all_text(run, true), plain = all_text(run, false);
    EXPECT_EQ(std::regex_replace(coloured, escape, ""), plain) << name;
    EXPECT_NE(coloured, plain) << name;
    EXPECT_FALSE(has(plain, "\x1b")) << name;
  }
}

TEST(text, a_long_name_is_never_cut) {
  auto c = clean_run().cases.at(0);
  for (const std::size_t length : {59u, 60u, 61u, 72u, 73u, 74u, 83u, 84u, 200u}) {
    c.name = "attend/" + std::string(length - 7, 'x');
    const auto line = text_case_line(c, false);
    EXPECT_TRUE(has(line, c.name)) << line;
    EXPECT_LE(line.size(), std::max<std::size_t>(101, 18 + length)) << line;
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  }
}

TEST(text, the_line_of_a_case_shows_verdict_time_and_margin) {
  const auto line = text_case_line(clean_run().cases.at(0), false);
  EXPECT_EQ(line.find("pass "), 0u);
  EXPECT_TRUE(has(line, "125 ms")) << line;
  EXPECT_TRUE(has(line, "K0 0.5 x")) << line;
  auto failing = mixed_run().cases.at(2);
  EXPECT_TRUE(has(text_case_line(failing, false), "K3 10.2 x"));
  failing.checks.erase(failing.checks.begin() + 2);  // leaves a violation whose value is NaN
  EXPECT_TRUE(has(text_case_line(failing, false), "K1 violated"));
}

TEST(text, a_pass_needs_no_detail_and_everything_else_has_one) {
  for (const auto& c : mixed_run().cases) {
    const auto detail = text_case_detail(c, false);
    EXPECT_EQ(detail.empty(), c.decided == verdict::pass) << c.name;
    if (c.decided == verdict::pass) continue;
    EXPECT_TRUE(has(detail, name(c.decided))) << detail;
    EXPECT_EQ(has(detail, "reproduce: " + c.repro + "\n"), c.decided != verdict::unsupported) << detail;
  }
}

TEST(text, the_detail_of_a_failure_holds_all_that_is_known) {
  const auto detail = text_case_detail(mixed_run().cases.at(2), false);
  for (const auto* part :
       {"fail (numeric): K3: row 3, head 1: block 17 dropped",
        "  K3  0.0204 abs > limit 0.002 (10.2 x) at out[row 3, head 1, channel 5]", "got 0.0625, want 0.0829",
        "largest term of the limit: output store 0.0015", "named by the code: block 17 dropped",
        "would pass with: p_operand fp16", "nan abs > limit inf", "not observed: K2: no lse emitted", "it printed:"})
    EXPECT_TRUE(has(detail, part)) << part << "\n" << detail;
  EXPECT_FALSE(has(detail, "  K0 ")) << detail;  // it held
}

TEST(text, the_detail_of_a_blind_case_says_how_blind) {
  const auto detail = text_case_detail(insensitive_run().cases.at(2), false);
  EXPECT_TRUE(has(detail, "weakest target fault: drop_key at 1.25 x its limit by K1; 4 x is needed")) << detail;
}

TEST(text, checks_are_a_table) {
  const auto table = text_case_checks(mixed_run().cases.at(2), false);
  EXPECT_TRUE(has(table, "K0    held"));
  EXPECT_TRUE(has(table, "K3    VIOLATED"));
  EXPECT_TRUE(has(table, "K2    not observed"));
  EXPECT_TRUE(has(table, "rows checked: 8 of 16"));
  EXPECT_TRUE(has(text_case_checks(unsupported_run().cases.at(0), false), "no check ran"));
}

TEST(text, the_summary_says_how_the_run_ended) {
  EXPECT_TRUE(has(text_summary(clean_run(), false), "PASSED: 2 of 2 cases verified and passed. Exit code 0."));
  EXPECT_TRUE(has(text_summary(empty_run(), false), "NOTHING VERIFIED: No case was selected. Exit code 3."));
  EXPECT_TRUE(has(text_summary(unsupported_run(), false), "NOTHING VERIFIED"));
  EXPECT_TRUE(has(text_summary(insensitive_run(), false), "INCOMPLETE"));
  EXPECT_TRUE(has(text_summary(mixed_run(), false), "SUITE ERROR"));
  for (const auto& [name, run] : sample_runs()) {
    EXPECT_EQ(has(text_summary(run, false), "PASSED"), name == "clean") << name;
    EXPECT_EQ(has(text_summary(run, false), "PARTIAL"), run.partial) << name;
  }
  auto failed = mixed_run();
  failed.cases.pop_back();
  EXPECT_TRUE(has(text_summary(failed, false), "FAILED: 6 of 11 cases failed.")) << text_summary(failed, false);
  EXPECT_TRUE(has(text_summary(failed, false), "not observed: K2: no lse emitted (1 case)"));
  EXPECT_TRUE(has(text_summary(failed, false), "quality-warning      1"));
}

TEST(text, random_cases_that_saw_nothing_are_counted_and_not_listed) {
  const auto summary = text_summary(random_run(), false);
  EXPECT_TRUE(has(summary, "1 too insensitive to verify"));
  EXPECT_FALSE(has(summary, "attend/m3/q1.n1M/bf16.paged/random/s0"));
  EXPECT_TRUE(has(text_summary(insensitive_run(), false), "attend/m3/q1.n1M/bf16.paged/random/s0"));
}

TEST(text, names_what_was_withdrawn) {
  EXPECT_TRUE(has(text_summary(mixed_run(), false), "Not run, since withdrawn: 1 case."));
  EXPECT_TRUE(has(text_summary(mixed_run(), false), "select/m3/q1.n1K/fp32/select.gap"));
}

}  // namespace
}  // namespace msabench

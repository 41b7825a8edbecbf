// SPDX-License-Identifier: Apache-2.0
#include "core/record.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace msabench {
namespace {

using nlohmann::json;

run_record run_with(std::initializer_list<verdict> verdicts) {
  run_record run;
  for (const auto v : verdicts) {
    case_record c;
    c.name = "attend/m3/q1.n1K/bf16.paged/random/s0";
    c.decided = v;
    run.cases.push_back(c);
  }
  return run;
}

TEST(exit_code, passes_only_what_was_verified) {
  EXPECT_EQ(exit_code_of(run_with({verdict::pass})), 0);
  EXPECT_EQ(exit_code_of(run_with({verdict::pass, verdict::unsupported})), 0);
  EXPECT_EQ(exit_code_of(run_with({verdict::quality_warning})), 0);
  EXPECT_EQ(exit_code_of(run_with({verdict::waived})), 0);
}

TEST(exit_code, every_bad_verdict_fails_the_run) {
  for (const auto v :
       {verdict::fail, verdict::broken_promise, verdict::crash, verdict::timeout, verdict::device_lost, verdict::xpass})
    EXPECT_EQ(exit_code_of(run_with({verdict::pass, v, verdict::insensitive, verdict::unsupported})), 1) << name(v);
  auto run = run_with({verdict::fail});
  run.cases[0].kind = fail_kind::nondeterministic;
  EXPECT_EQ(exit_code_of(run), 1);
}

TEST(exit_code, a_fault_of_the_suite_outweighs_all) {
  EXPECT_EQ(exit_code_of(run_with({verdict::suite_error})), 70);
  EXPECT_EQ(exit_code_of(run_with({verdict::fail, verdict::suite_error})), 70);
  auto run = run_with({verdict::pass, verdict::suite_error});
  run.partial = true;
  EXPECT_EQ(exit_code_of(run), 70);
}

TEST(exit_code, random_cases_may_see_nothing_as_long_as_some_do) {
  const auto random = [](std::initializer_list<verdict> verdicts) {
    run_record run = run_with(verdicts);
    run.fuzz = fuzz_record{};
    return exit_code_of(run);
  };
  EXPECT_EQ(random({verdict::pass, verdict::insensitive}), 0);
  EXPECT_EQ(random({verdict::fail, verdict::insensitive}), 1);
  EXPECT_EQ(random({verdict::insensitive}), 2);
  EXPECT_EQ(random({verdict::unsupported, verdict::insensitive}), 2);
  EXPECT_EQ(random({verdict::unsupported}), 3);
  EXPECT_EQ(random({}), 3);
  EXPECT_EQ(random({verdict::pass, verdict::suite_error}), 70);
}

TEST(exit_code, an_insensitive_or_interrupted_run_is_partial) {
  EXPECT_EQ(exit_code_of(run_with({verdict::pass, verdict::insensitive})), 2);
  auto run = run_with({verdict::pass});
  run.partial = true;
  EXPECT_EQ(exit_code_of(run), 2);
  run.cases.clear();
  EXPECT_EQ(exit_code_of(run), 2);
  run = run_with({verdict::fail});
  run.partial = true;
  EXPECT_EQ(exit_code_of(run), 1);
}

TEST(exit_code, nothing_verified_is_no_success) {
  EXPECT_EQ(exit_code_of(run_with({})), 3);
  EXPECT_EQ(exit_code_of(run_with({verdict::unsupported, verdict::unsupported})), 3);
}

TEST(report_json, carries_the_fields_of_the_format) {
  run_record run = run_with({verdict::pass, verdict::fail, verdict::quality_warning});
  run.seed = 18446744073709551615u;
  run.cases[1].seed = 18446744073709551614u;
  run.cases[1].kind = fail_kind::numeric;
  run.cases[1].elapsed_s = 1.5;
  const json out = to_report_json(run);
  for (const auto* key : {"schema", "suite", "run", "environment", "implementation", "cases", "summary"})
    EXPECT_TRUE(out.contains(key)) << key;
  EXPECT_EQ(out.at("schema"), "msabench.report/1");
  EXPECT_EQ(out.at("run").at("seed"), "18446744073709551615");
  EXPECT_EQ(out.at("cases").at(1).at("seed"), "18446744073709551614");
  EXPECT_EQ(out.at("cases").at(1).at("verdict"), "fail");
  EXPECT_EQ(out.at("cases").at(1).at("kind"), "numeric");
  EXPECT_FALSE(out.at("cases").at(0).contains("kind"));
  const auto& summary = out.at("summary");
  EXPECT_EQ(summary.at("verdicts").at("pass"), 1);
  EXPECT_EQ(summary.at("verdicts").at("fail"), 1);
  EXPECT_EQ(summary.at("verdicts").at("crash"), 0);
  EXPECT_EQ(summary.at("passed"), 2);
  EXPECT_EQ(summary.at("total"), 3);
  EXPECT_EQ(summary.at("exit_code"), 1);
  EXPECT_EQ(summary.at("seconds"), 1.5);
}

TEST(report_json, has_no_number_that_json_has_not) {
  run_record run = run_with({verdict::fail});
  check_result check;
  check.id = "K1";
  check.value = std::numeric_limits<double>::quiet_NaN();
  check.limit = std::numeric_limits<double>::infinity();
  check.terms = {{"output", -std::numeric_limits<double>::infinity()}, {"score", 1}};
  check.worst.where = slot::out;
  check.worst.got = std::numeric_limits<double>::quiet_NaN();
  run.cases[0].checks = {check};
  run.cases[0].sees.by_fault = {{"drop_key", std::numeric_limits<double>::infinity()}};
  const auto again = json::parse(to_report_json(run).dump());
  const auto& c = again.at("cases").at(0);
  const auto& k1 = c.at("checks").at(0);
  EXPECT_TRUE(k1.at("value").is_null());
  EXPECT_EQ(k1.at("value_tag"), "nan");
  EXPECT_EQ(k1.at("limit_tag"), "inf");
  EXPECT_EQ(k1.at("terms").at("output_tag"), "-inf");
  EXPECT_EQ(k1.at("largest_term"), "output");
  EXPECT_EQ(k1.at("worst").at("slot"), "out");
  EXPECT_EQ(k1.at("worst").at("got_tag"), "nan");
  EXPECT_EQ(c.at("detectability").at("by_fault").at("drop_key_tag"), "inf");
}

TEST(report_json, foreign_text_is_made_printable) {
  run_record run = run_with({verdict::crash});
  run.cases[0].captured_output = "line 1\nbell \a \xff\n";
  run.cases[0].reason = "two\nlines";
  run.implementation.name = "\xc3(";
  run.environment = {{"cpus", {"\xff", 2}}, {"\xfe", nullptr}};
  const auto text = to_report_json(run).dump();  // throws on text that is not UTF-8
  const auto again = json::parse(text);
  EXPECT_EQ(again.at("cases").at(0).at("captured_output"), "line 1\nbell \\x07 \\xff\n");
  EXPECT_EQ(again.at("cases").at(0).at("reason"), "two\\nlines");
  EXPECT_EQ(again.at("implementation").at("name"), "\\xc3(");
  EXPECT_EQ(again.at("environment"), json({{"cpus", {"\\xff", 2}}, {"\\xfe", nullptr}}));
}

TEST(report_json, the_implementation_has_a_declaration_only_if_its_answers_agree) {
  run_record run = run_with({verdict::pass, verdict::unsupported, verdict::pass});
  EXPECT_TRUE(to_report_json(run).at("implementation").at("numerics").is_null());
  numerics n;
  n.pv_acc = fp32;
  run.cases[0].declared = n;
  EXPECT_EQ(to_report_json(run).at("implementation").at("numerics").at("pv_acc"), "fp32");
  run.cases[2].declared = n;
  EXPECT_EQ(to_report_json(run).at("implementation").at("numerics").at("pv_acc"), "fp32");
  run.cases[2].declared->pv_acc = bf16;
  EXPECT_TRUE(to_report_json(run).at("implementation").at("numerics").is_null());
  EXPECT_EQ(to_report_json(run).at("cases").at(2).at("numerics").at("pv_acc"), "bf16");
}

}  // namespace
}  // namespace msabench

// SPDX-License-Identifier: Apache-2.0
// The runner against executors that never run anything: what they report becomes the right record, and one bad case leaves the
// others alone.
#include "conformance/runner.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "judge/rows.h"

namespace msabench {
namespace {

class scripted_executor : public executor {
 public:
  observation query_answer, execute_answer;
  bool throws_suite_error = false;
  int executed = 0;

  implementation_record info() override { return {"scripted", "1", "", "", ""}; }
  observation query(const problem&) override { return query_answer; }
  observation execute(input_set&, const run_spec& how) override {
    ++executed;
    last_launches = how.launches;
    if (throws_suite_error) throw suite_error("out of paper");
    return execute_answer;
  }
  int last_launches = 0;
};

capability honest(const problem& p) {
  capability c;
  numerics& n = c.declared;
  n.operand = n.v_operand = n.out_store = p.q;
  n.score_acc = n.score_store = n.p_operand = n.pv_acc = n.partial_store = n.ds_operand = fp32;
  return c;
}

const case_spec& quick() {
  static const case_spec c = parse_case("attend/h8x2.d64.b32.k4.l1.i0/rag.small/fp32.contig/random/s3");
  return c;
}

scripted_executor willing() {
  scripted_executor on;
  on.query_answer.answered = honest(make_problem(quick()));
  return on;
}

TEST(run_case, records_who_and_what) {
  auto on = willing();
  on.execute_answer.result = outcome::crashed;
  on.execute_answer.entry = "run";
  on.execute_answer.message = "signal 11";
  const auto record = run_case(on, quick(), {std::nullopt, " --impl mine"});
  EXPECT_EQ(record.decided, verdict::crash);
  EXPECT_NE(record.reason.find("signal 11"), std::string::npos);
  EXPECT_EQ(record.repro, "msabench repro " + name(quick()) + " --impl mine");
  EXPECT_EQ(record.definition_sha256, definition_sha256(quick()));
  EXPECT_EQ(record.seed, 3U);
  EXPECT_EQ(record.rows_checked, 0);
  EXPECT_EQ(record.rows_total, total_rows(quick()));
}

TEST(run_case, does_not_run_what_is_refused) {
  scripted_executor on;
  on.query_answer.result = outcome::unsupported;
  on.query_answer.message = "d 64: not here";
  const auto record = run_case(on, quick(), {});
  EXPECT_EQ(record.decided, verdict::unsupported);
  EXPECT_NE(record.reason.find("d 64"), std::string::npos);
  EXPECT_EQ(on.executed, 0);
}

TEST(run_case, does_not_run_on_a_declaration_above_its_cap) {
  auto on = willing();
  on.query_answer.answered->declared.p_operand = bf16;  // the cap for fp32 problems is fp32
  const auto record = run_case(on, quick(), {});
  EXPECT_EQ(record.decided, verdict::broken_promise);
  EXPECT_NE(record.reason.find("p_operand"), std::string::npos);
  EXPECT_EQ(on.executed, 0);
}

TEST(run_case, completed_without_launches_is_no_pass) {
  auto on = willing();
  const auto record = run_case(on, quick(), {});
  EXPECT_EQ(on.executed, 1);
  EXPECT_NE(record.decided, verdict::pass);
}

TEST(run_case, holds_what_a_query_left_behind_against_the_case) {
  auto on = willing();
  on.query_answer.violations.push_back({violation::kind::floating_point_mode, std::nullopt, "query", "rounding mode"});
  // Without the violation this would be an unsupported case.
  on.execute_answer.result = outcome::unsupported;
  on.execute_answer.entry = "query";
  const auto record = run_case(on, quick(), {});
  EXPECT_EQ(record.decided, verdict::fail);
  EXPECT_EQ(record.kind, fail_kind::contract);
}

TEST(run_cases, goes_on_after_a_fault_of_the_suite) {
  auto on = willing();
  on.throws_suite_error = true;
  run_record run;
  std::vector<std::size_t> done;
  run_cases(on, {quick(), quick()}, {}, run, [&](const case_record& r, const progress& where) {
    EXPECT_EQ(r.decided, verdict::suite_error);
    done.push_back(where.done);
  });
  EXPECT_EQ(done, (std::vector<std::size_t>{1, 2}));
  EXPECT_EQ(run.cases.size(), 2U);
  EXPECT_FALSE(run.partial);
  EXPECT_EQ(exit_code_of(run), exit_code::suite);
}

TEST(run_case, rep_launches_twenty_times_after_the_rehearsal) {
  auto on = willing();
  run_case(on, parse_case("attend/h8x2.d64.b32.k4.l1.i0/rag.small/fp32.contig/random/rep/s0"), {});
  EXPECT_EQ(on.last_launches, 21);
}

TEST(time_limit, grows_with_the_case_and_is_never_short) {
  const double small = time_limit_s(quick());
  EXPECT_GE(small, 10);
  EXPECT_GT(time_limit_s(parse_case("attend/m3/q2047.n1M/bf16.paged/random/s0")), 10 * small);
}

}  // namespace
}  // namespace msabench

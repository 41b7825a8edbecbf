// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "attend_world.h"

namespace msabench::judge::test {
namespace {

struct seen_case {
  attend_world world{attend_shape{}};
  observation seen;
  std::vector<check_result> checks;
  detectability sees;

  seen_case() {
    world.targets = {perturbation::drop_block};
    sees.judged = true;
    sees.value = 10;
  }
  decision decide() const { return judge::decide(world.subject(), seen, checks, sees); }
};

check_result good(std::string id) {
  check_result c;
  c.id = std::move(id);
  c.passed = true;
  return c;
}

check_result bad(std::string id, fail_kind kind) {
  check_result c;
  c.id = std::move(id);
  c.kind = kind;
  return c;
}

void expect_verdict(const seen_case& s, verdict v, fail_kind kind = fail_kind::none) {
  const auto d = s.decide();
  EXPECT_EQ(name(d.decided), name(v)) << d.reason;
  EXPECT_EQ(name(d.kind), name(kind)) << d.reason;
  EXPECT_EQ(d.reason.find('\n'), std::string::npos);
  EXPECT_EQ(d.reason.empty(), v == verdict::pass);
}

TEST(decide, pass_needs_checks_and_sight) {
  seen_case s;
  expect_verdict(s, verdict::suite_error);
  s.checks = {good("K0"), good("K1")};
  expect_verdict(s, verdict::pass);
  s.sees.value = 3.9;
  s.sees.weakest_fault = "drop_block";
  expect_verdict(s, verdict::insensitive);
  s.sees.value = std::nan("");
  expect_verdict(s, verdict::insensitive);
  s.sees = {};
  expect_verdict(s, verdict::insensitive);
  s.world.targets.clear();
  expect_verdict(s, verdict::pass);
}

TEST(decide, unobserved_gates_never_read_as_passed) {
  seen_case s;
  s.checks = {good("K0"), good("K1"), good("K3")};
  s.checks[2].passed = false;
  s.checks[2].observed = false;
  expect_verdict(s, verdict::insensitive);
  // K2 is the exception: other cases stand in for it.
  s.checks[2].id = "K2";
  expect_verdict(s, verdict::pass);
}

TEST(decide, a_failure_outranks_a_lack_of_sight) {
  seen_case s;
  s.checks = {bad("K1", fail_kind::numeric)};
  s.sees.value = 0;
  expect_verdict(s, verdict::fail, fail_kind::numeric);
}

TEST(decide, ends_of_the_process) {
  seen_case s;
  s.seen.entry = "run";
  s.seen.message = "signal 11 (Segmentation fault)";
  s.seen.result = outcome::crashed;
  expect_verdict(s, verdict::crash);
  EXPECT_EQ(s.decide().reason, "run: signal 11 (Segmentation fault)");
  s.seen.result = outcome::timed_out;
  expect_verdict(s, verdict::timeout);
  s.seen.result = outcome::device_lost;
  expect_verdict(s, verdict::device_lost);
  s.seen.result = outcome::nonsense;
  expect_verdict(s, verdict::broken_promise);
  s.seen.result = outcome::crashed;
  s.checks = {bad("R3", fail_kind::contract)};
  expect_verdict(s, verdict::fail, fail_kind::contract);
}

TEST(decide, unsupported_is_a_declaration_only_where_it_may_be_made) {
  seen_case s;
  s.seen.result = outcome::unsupported;
  s.seen.entry = "query";
  s.seen.message = "page_size 64: not built; use 128";
  expect_verdict(s, verdict::unsupported);
  EXPECT_EQ(s.decide().reason, "page_size 64: not built; use 128");
  s.seen.entry = "plan";
  expect_verdict(s, verdict::broken_promise);
  s.seen.entry = "run";
  expect_verdict(s, verdict::broken_promise);
  s.world.definition.options.stride = true;
  expect_verdict(s, verdict::unsupported);
  s.checks = {bad("R8", fail_kind::contract)};
  expect_verdict(s, verdict::fail, fail_kind::contract);
}

TEST(decide, error_statuses) {
  seen_case s;
  s.seen.result = outcome::error_status;
  s.seen.entry = "run";
  s.seen.status = 4;
  expect_verdict(s, verdict::fail, fail_kind::contract);
  EXPECT_EQ(s.decide().reason, "run answered MSABENCH_INTERNAL: (no message)");
  s.seen.status = 77;
  s.seen.message = "two\nlines";
  EXPECT_EQ(s.decide().reason, "run answered status 77: two\\nlines");
  for (const int status : {2, 3}) {
    s.seen.status = status;
    expect_verdict(s, verdict::fail, fail_kind::contract);
  }
  s.seen.status = 5;
  expect_verdict(s, verdict::device_lost);
}

TEST(decide, broken_declarations_outrank_values) {
  seen_case s;
  s.world.declared.p_operand = e4m3;
  s.checks = {bad("K1", fail_kind::numeric)};
  expect_verdict(s, verdict::broken_promise);
}

TEST(decide, damage_comes_before_values) {
  seen_case s;
  s.checks = {bad("K1", fail_kind::numeric), bad("K7", fail_kind::nondeterministic), bad("K0", fail_kind::contract),
              bad("K0", fail_kind::input_modified), bad("K0", fail_kind::out_of_bounds)};
  for (const auto kind : {fail_kind::out_of_bounds, fail_kind::input_modified, fail_kind::contract,
                          fail_kind::nondeterministic, fail_kind::numeric}) {
    expect_verdict(s, verdict::fail, kind);
    std::erase_if(s.checks, [&](const auto& c) { return c.kind == kind; });
  }
}

TEST(decide, a_cure_is_named_only_if_it_cures_everything) {
  seen_case s;
  s.checks = {bad("K1", fail_kind::numeric), bad("K2", fail_kind::numeric)};
  s.checks[0].cure = "p_operand bf16 instead of fp32";
  EXPECT_NE(s.decide().reason.find("no declared number would have made it pass"), std::string::npos);
  EXPECT_EQ(s.decide().reason.find("would pass with"), std::string::npos);
  s.checks[1].cure = "lse_from_rounded_p 1";
  EXPECT_NE(s.decide().reason.find("would pass with p_operand bf16 instead of fp32 and lse_from_rounded_p 1"),
            std::string::npos);
  s.checks[1].cure = s.checks[0].cure;
  EXPECT_NE(s.decide().reason.find("would pass with p_operand bf16 instead of fp32;"), std::string::npos);
}

TEST(decide, reported_checks_do_not_gate) {
  seen_case s;
  s.checks = {good("K0"), bad("K6", fail_kind::numeric)};
  s.checks[1].gate = false;
  expect_verdict(s, verdict::pass);
}

TEST(decide, quantised_ranking_is_a_quality_warning) {
  seen_case s;
  s.checks = {good("K0"), good("K5")};
  s.world.delivers.rank_step = 1.0F / 65535;
  expect_verdict(s, verdict::pass);
  s.world.agreed.operation = op::select;
  expect_verdict(s, verdict::quality_warning);
}

TEST(decide, a_failing_line_tells_everything) {
  attend_world w({.hq = 4, .hkv = 2, .d = 64, .block = 8, .topk = 4, .sequences = {{8, 320}}}, "key_code");
  w.fill_key_code(38);
  variant v;
  v.edit_keys = [](std::int64_t row, std::int64_t, std::vector<std::int64_t>& keys) {
    if (row == 5) std::erase(keys, 307);
  };
  w.run(v);
  const auto d = judge::decide(w.subject(), {}, checks_of(w), {});
  EXPECT_EQ(name(d.decided), "fail");
  for (const std::string part :
       {"K3 attend out at row 5, head ", "channel ", "key 307 (block 38, offset 3) dropped", "got 0, want 0.033",
        "exceeds the limit", "largest term ulp", "no declared number would have made it pass"})
    EXPECT_NE(d.reason.find(part), std::string::npos) << part << " in: " << d.reason;
  EXPECT_EQ(d.reason.find('\n'), std::string::npos);
}

std::vector<launch> launches(std::vector<std::string> hashes) {
  std::vector<launch> all;
  for (auto& h : hashes) {
    launch l;
    l.outputs_sha256 = h;
    all.push_back(l);
  }
  return all;
}

TEST(merge, keeps_the_worst_of_each_check) {
  attend_world w({});
  auto mild = good("K1"), close = good("K1");
  mild.value = 1;
  mild.limit = close.limit = 10;
  close.value = 9;
  const auto merged = merge_launches(w.subject(), launches({"a", "b"}), {{mild}, {close}});
  ASSERT_EQ(merged.size(), 2U);
  EXPECT_EQ(merged[0].value, 9);
  EXPECT_TRUE(find_check(merged, "K7").passed);
}

TEST(merge, a_failure_outranks_what_was_not_observed) {
  attend_world w({});
  auto unseen = good("K2");
  unseen.passed = unseen.observed = false;
  const auto failing = bad("K2", fail_kind::numeric);
  for (const auto& order : {std::vector{unseen, failing}, {failing, unseen}}) {
    const auto merged = merge_launches(w.subject(), launches({"a", "b"}), {{order[0]}, {order[1]}});
    EXPECT_TRUE(find_check(merged, "K2").observed);
    EXPECT_FALSE(find_check(merged, "K2").passed);
  }
  const auto merged = merge_launches(w.subject(), launches({"a", "b"}), {{good("K2")}, {unseen}});
  EXPECT_FALSE(find_check(merged, "K2").observed);
}

TEST(merge, launches_that_disagree_fail_k7) {
  attend_world w({});
  const auto merged =
      merge_launches(w.subject(), launches({"a", "b"}), {{good("K1")}, {bad("K1", fail_kind::numeric)}});
  EXPECT_FALSE(find_check(merged, "K1").passed);
  const auto k7 = find_check(merged, "K7");
  EXPECT_FALSE(k7.passed);
  EXPECT_EQ(k7.kind, fail_kind::nondeterministic);
  EXPECT_EQ(k7.note, "launch 2 of 2 fails K1 where launch 1 of 2 passes");
  EXPECT_EQ(find_check(merged, "K1").note, "launch 2 of 2");
}

TEST(merge, bits_are_compared_where_repeatable_is_promised) {
  attend_world w({});
  EXPECT_TRUE(find_check(merge_launches(w.subject(), launches({"a", "b"}), {{good("K1")}, {good("K1")}}), "K7").passed);
  w.delivers.repeatable = true;
  EXPECT_TRUE(find_check(merge_launches(w.subject(), launches({"a", "a"}), {{good("K1")}, {good("K1")}}), "K7").passed);
  const auto k7 = find_check(merge_launches(w.subject(), launches({"a", "b"}), {{good("K1")}, {good("K1")}}), "K7");
  EXPECT_FALSE(k7.passed);
  EXPECT_EQ(k7.kind, fail_kind::none);
  EXPECT_EQ(k7.promise, "repeatable");
  EXPECT_EQ(name(judge::decide(w.subject(), {}, {good("K1"), k7}, {}).decided), "broken-promise");
}

TEST(merge, one_launch_is_no_observation) {
  attend_world w({});
  EXPECT_FALSE(find_check(merge_launches(w.subject(), launches({"a"}), {{good("K1")}}), "K7").observed);
}

TEST(violations, become_checks_of_their_rules) {
  attend_world w({});
  observation seen;
  using kind = violation::kind;
  seen.violations = {{kind::out_of_bounds, slot::out, "run", "4 bytes below"},
                     {kind::input_modified, slot::k, "run", ""},
                     {kind::floating_point_mode, {}, "plan", "flush to zero"},
                     {kind::memory_limit, {}, "run", ""},
                     {kind::wrote_on_error, slot::lse, "run", ""},
                     {kind::beyond_t, slot::out, "run", ""}};
  const auto checks = check_violations(w.subject(), seen);
  ASSERT_EQ(checks.size(), 6U);
  EXPECT_EQ(checks[0].kind, fail_kind::out_of_bounds);
  EXPECT_EQ(checks[0].note, "bytes outside of the buffer changed at out by run: 4 bytes below");
  EXPECT_EQ(checks[1].kind, fail_kind::input_modified);
  EXPECT_EQ(checks[2].id, "R6");
  EXPECT_EQ(checks[3].id, "R3");
  EXPECT_EQ(checks[4].id, "R8");
  EXPECT_EQ(checks[5].kind, fail_kind::out_of_bounds);
  for (const auto& c : checks) EXPECT_FALSE(c.passed);
  EXPECT_TRUE(check_violations(w.subject(), {}).empty());
}

}  // namespace
}  // namespace msabench::judge::test

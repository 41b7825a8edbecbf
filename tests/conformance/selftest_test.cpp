// SPDX-License-Identifier: Apache-2.0
#include "conformance/selftest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "conformance/lists.h"
#include "core/error.h"
#include "kernels/mutants/mutant.h"
#include "kernels/variants/variant.h"

namespace msabench {
namespace {

bool holds(const std::vector<std::string>& all, const std::string& one) {
  return std::ranges::find(all, one) != all.end();
}

TEST(selftest_lists, run_cases_of_core) {
  const auto& lists = built_in_selftest_lists();
  const auto core = load_list("core").names;
  for (const auto& each : lists.cases) EXPECT_TRUE(holds(core, each)) << each;
  std::set<std::string> used;
  for (const auto& m : lists.mutants) {
    EXPECT_GE(m.cases.size(), 2U) << m.id;
    used.insert(m.cases.begin(), m.cases.end());
  }
  for (const auto& v : lists.variants) used.insert(v.cases.begin(), v.cases.end());
  EXPECT_EQ(used, std::set<std::string>(lists.cases.begin(), lists.cases.end()));
}

TEST(selftest_lists, name_every_mutant_and_variant_that_there_is) {
  const auto& lists = built_in_selftest_lists();
  std::multiset<std::string> listed, built;
  for (const auto& m : lists.mutants) listed.insert(m.id);
  mutants::for_each([&](const mutants::mutant& m) {
    built.insert(m.id);
    EXPECT_GT(std::string(m.fault).size(), 10U) << m.id;
    EXPECT_LT(std::string(m.fault).size(), 160U) << m.id;
    EXPECT_TRUE(m.change_stages != nullptr || m.change_calls != nullptr) << m.id;
  });
  EXPECT_EQ(listed, built);
  listed.clear();
  built.clear();
  for (const auto& v : lists.variants) listed.insert(v.name);
  variants::for_each([&](const variants::variant& v) { built.insert(v.name); });
  EXPECT_EQ(listed, built);
  EXPECT_GE(listed.size(), 20U);
}

// Kinds of faults that public kernels have had. KL: with the operator kl; those of benchmarks are tried in tests/perf.
TEST(selftest_lists, have_a_mutant_of_every_kind) {
  for (const char* kind :
       {"IDX-1",  "IDX-2",    "IDX-3",  "IDX-4",  "IDX-5",  "IDX-6",  "IDX-7",  "SEL-1",  "SEL-2",   "SEL-3",
        "SEL-4",  "SEL-5",    "SEL-6",  "SEL-7",  "SEL-8",  "SEL-9",  "TAIL-1", "TAIL-2", "TAIL-3",  "CAUS-1",
        "CAUS-2", "CAUS-3",   "ROW-1",  "ROW-2",  "ROW-3",  "PAGE-1", "PAGE-2", "PAGE-3", "RACE-1",  "RACE-2",
        "RACE-3", "GRAPH-1",  "COMB-1", "COMB-2", "COMB-3", "GQA-1",  "GQA-2",  "PREC-1", "PREC-2",  "PREC-3",
        "ROPE-1", "NORM-1",   "BWD-1",  "BWD-2",  "VIT-1",  "VIT-2",  "VIT-3",  "VIT-4",  "DENSE-1", "ZERO-1",
        "MEM-1",  "LAUNCH-1", "KL-1",   "KL-2",   "KL-3",   "KL-4"})
    EXPECT_TRUE(std::ranges::any_of(built_in_selftest_lists().mutants, [&](const auto& m) {
      return m.id.starts_with(std::string(kind) + ".");
    })) << kind;
}

std::string refusal(std::string_view text) {
  try {
    read_mutants(text);
  } catch (const usage_error& e) {
    return e.what();
  }
  return "";
}

TEST(selftest_lists, are_read_line_by_line) {
  const auto all = read_mutants("# none\nIDX-1.a  K5,K0  select/m3/q1.n1K/fp32/select.gap # why\n");
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].id, "IDX-1.a");
  EXPECT_EQ(all[0].checks, (std::vector<std::string>{"K5", "K0"}));
  EXPECT_EQ(all[0].cases, (std::vector<std::string>{"select/m3/q1.n1K/fp32/select.gap"}));
  EXPECT_NE(refusal("\nA-1.a\n").find("mutants:2"), std::string::npos);
  EXPECT_NE(refusal("A-1.a K1\n").find("no case"), std::string::npos);
  EXPECT_NE(refusal("A-1.a K1 nonsense\n").find("mutants:1"), std::string::npos);
  const std::string line = "A-1.a K5 select/m3/q1.n1K/fp32/select.gap\n";
  EXPECT_NE(refusal(line + line).find("listed already"), std::string::npos);
}

TEST(selftest_score, is_quoted_for_its_own_lists_only) {
  const std::string text = "# comment\nlists abc\nscore 1 of 1 mutants rejected\n";
  EXPECT_EQ(score_in(text, "abc"), "1 of 1 mutants rejected");
  EXPECT_EQ(score_in(text, "abd"), "none");
  EXPECT_EQ(score_in("", ""), "none");
  EXPECT_EQ(score_in("lists abc\n", "abc"), "none");
}

selftest_trial dead(const std::string& name, std::vector<std::string> checks) {
  selftest_trial t;
  t.case_name = name;
  t.decided = verdict::fail;
  for (auto& id : checks) t.failed.push_back({std::move(id), 2});
  return t;
}

selftest_trial ended(const std::string& name, verdict how) {
  selftest_trial t;
  t.case_name = name;
  t.decided = how;
  return t;
}

selftest_subject mutant(std::vector<std::string> due, std::vector<selftest_trial> trials) {
  selftest_subject m;
  m.name = "mutants:X-1.a";
  m.due = std::move(due);
  m.trials = std::move(trials);
  judge_mutant(m);
  return m;
}

TEST(selftest, a_mutant_dies_of_a_check_of_its_own_stage_where_it_is_meant_to) {
  const auto held = mutant({"K1", "K5"}, {dead("a/s0", {"K0", "K5"})});
  EXPECT_TRUE(held.held) << held.complaint;
  EXPECT_EQ(held.by, "K5");
  EXPECT_TRUE(mutant({"K4"}, {dead("a/s0", {"K4a"})}).held);
  EXPECT_TRUE(mutant({"crash"}, {ended("a/s0", verdict::crash)}).held);
  EXPECT_TRUE(mutant({"timeout"}, {ended("a/s0", verdict::timeout)}).held);
  EXPECT_FALSE(mutant({"K1"}, {ended("a/s0", verdict::crash)}).held);
  EXPECT_NE(mutant({"K1"}, {dead("a/s0", {"K0"})}).complaint.find("dies of K0"), std::string::npos);
  EXPECT_NE(mutant({"K1"}, {ended("a/s0", verdict::pass)}).complaint.find("lives"), std::string::npos);
  const auto late = mutant({"K1"}, {ended("a/s0", verdict::pass), dead("b/s0", {"K1"})});
  EXPECT_FALSE(late.held);
  EXPECT_NE(late.complaint.find("lives in a/s0, which is meant for it"), std::string::npos);
  // What was judged without a check, or not at all, is no death.
  EXPECT_FALSE(mutant({"K1"}, {ended("a/s0", verdict::insensitive)}).held);
  EXPECT_FALSE(mutant({"K1"}, {ended("a/s0", verdict::suite_error)}).held);
  EXPECT_FALSE(mutant({"K1"}, {}).held);
}

TEST(selftest, a_mutant_from_elsewhere_may_die_of_anything_anywhere) {
  EXPECT_TRUE(mutant({}, {ended("a/s0", verdict::pass), dead("b/s0", {"K3"})}).held);
  EXPECT_FALSE(mutant({}, {ended("a/s0", verdict::pass)}).held);
}

selftest_subject variant(std::vector<selftest_trial> trials) {
  selftest_subject v;
  v.trials = std::move(trials);
  judge_variant(v);
  return v;
}

TEST(selftest, a_variant_lives_everywhere_and_is_verified_somewhere) {
  EXPECT_TRUE(variant({ended("a/s0", verdict::pass), ended("b/s0", verdict::unsupported)}).held);
  EXPECT_TRUE(variant({ended("a/s0", verdict::quality_warning)}).held);
  EXPECT_FALSE(variant({ended("a/s0", verdict::unsupported)}).held);
  EXPECT_FALSE(variant({ended("a/s0", verdict::insensitive)}).held);
  EXPECT_FALSE(variant({}).held);
  const auto failing = variant({ended("a/s0", verdict::pass), dead("b/s0", {"K1"})});
  EXPECT_NE(failing.complaint.find("fail in b/s0"), std::string::npos) << failing.complaint;
}

TEST(selftest, a_variant_is_verified_in_each_of_its_own_cases) {
  auto own = ended("b/s0", verdict::unsupported);
  own.is_own = true;
  for (const verdict left : {verdict::unsupported, verdict::insensitive}) {
    own.decided = left;
    const auto idle = variant({ended("a/s0", verdict::pass), own});
    EXPECT_FALSE(idle.held);
    EXPECT_NE(idle.complaint.find("in b/s0"), std::string::npos) << idle.complaint;
  }
  own.decided = verdict::quality_warning;
  EXPECT_TRUE(variant({ended("a/s0", verdict::pass), own}).held);
}

TEST(selftest, a_variant_uses_less_than_half_of_what_it_is_allowed) {
  auto trial = ended("a/s0", verdict::pass);
  trial.use = {{"K1", 0.97}, {"K6u", 0.3}};
  EXPECT_TRUE(variant({trial}).held);
  trial.use["K6u"] = 0.5;
  const auto greedy = variant({trial});
  EXPECT_FALSE(greedy.held);
  EXPECT_NE(greedy.complaint.find("0.50"), std::string::npos) << greedy.complaint;
}

TEST(selftest, its_end_has_the_code_of_what_it_says) {
  selftest_record run;
  EXPECT_EQ(exit_code_of(run), exit_code::nothing_verified);
  run.mutants.push_back(mutant({"K1"}, {dead("a/s0", {"K1"})}));
  EXPECT_EQ(exit_code_of(run), exit_code::ok);
  run.variants.push_back(variant({dead("a/s0", {"K1"})}));
  EXPECT_EQ(exit_code_of(run), exit_code::failed);
  EXPECT_NE(score_of(run).find("1 of 1 mutants rejected, 0 of 1 variants accepted"), std::string::npos);
  run.without = "K3";
  EXPECT_EQ(exit_code_of(run), exit_code::partial);
}

}  // namespace
}  // namespace msabench

// SPDX-License-Identifier: Apache-2.0
// Random cases: that they are legal and reach everything, that shrinking ends at the smallest failing case, and what a run
// over them records.
#include "conformance/fuzz.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "conformance/case_source.h"
#include "conformance/shrink.h"
#include "core/verdict.h"

namespace msabench {
namespace {

TEST(case_source, draws_the_same_again) {
  const case_source one(7, {}), again(7, {}), other(8, {});
  std::set<std::string> names;
  for (std::uint64_t i = 0; i < 200; ++i) {
    EXPECT_EQ(one.draw(i), again.draw(i));
    names.insert(name(one.draw(i)));
    names.insert(name(other.draw(i)));
  }
  EXPECT_GT(names.size(), 390U);
}

TEST(case_source, every_case_has_a_name_and_is_quick) {
  const case_source all(1, {});
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const case_spec c = all.draw(i);
    EXPECT_EQ(parse_case(name(c)), c);
    EXPECT_TRUE(is_quick(c)) << name(c);
  }
}

TEST(case_source, keeps_to_the_operators_asked_for) {
  const case_source some(1, {op::select, op::combine});
  std::set<op> drawn;
  for (std::uint64_t i = 0; i < 100; ++i) drawn.insert(some.draw(i).operation);
  EXPECT_EQ(drawn, (std::set<op>{op::select, op::combine}));
}

TEST(case_source, reaches_every_family_layout_type_and_option) {
  std::set<std::string> wanted, seen;
  for (const auto& f : families())
    for (const op o : f.operators)
      for (const auto variant : f.variants)
        wanted.insert(std::string(name(o)) + " " + std::string(f.name) + "." + std::string(variant));
  for (const char* each : {"contig",      "paged",        "fused",
                           "bf16",        "fp16",         "fp32",
                           "page",        "pool",         "scale",
                           "split",       "rope",         "window",
                           "stride",      "slack",        "rep",
                           "fp8",         "fp8tensor",    "lenient",
                           "short",       "part16",       "grad16",
                           "empty batch", "listed",       "uniform",
                           "grids",       "padding rows", "no query tokens",
                           "no keys",     "named shape",  "bare",
                           "warm",        "coeff",        "fp8idx",
                           "fp8idxtensor"})
    wanted.insert(each);
  const auto see = [&](bool holds, const char* what) {
    if (holds) seen.insert(what);
  };
  const case_source all(3, {});
  for (std::uint64_t i = 0; i < 20000 && seen != wanted; ++i) {
    const case_spec c = all.draw(i);
    const case_options& o = c.options;
    seen.insert(std::string(name(c.operation)) + " " + c.family + "." + c.variant);
    see(names_layout(c.operation) && c.layout == page_layout::contiguous, "contig");
    see(c.layout == page_layout::paged, "paged");
    see(c.layout == page_layout::fused, "fused");
    see(o.bare, "bare");
    see(o.warm, "warm");
    see(o.kl_coeff != 1, "coeff");
    see(c.type == bf16, "bf16");
    see(c.type == fp16, "fp16");
    see(c.type == fp32, "fp32");
    see(o.page_size != 0, "page");
    see(o.pool_pages != 0, "pool");
    see(o.softmax_scale != 0, "scale");
    see(o.splits != 0, "split");
    see(o.rope_dims >= 0, "rope");
    see(o.window >= 0, "window");
    see(o.stride, "stride");
    see(o.slack, "slack");
    see(o.rep, "rep");
    see(o.fp8 == scale_form::token, "fp8");
    see(o.fp8 == scale_form::tensor, "fp8tensor");
    see(o.fp8_index == scale_form::token, "fp8idx");
    see(o.fp8_index == scale_form::tensor, "fp8idxtensor");
    see(o.lenient, "lenient");
    see(o.short_rows, "short");
    see(o.part16, "part16");
    see(o.grad16, "grad16");
    see(!c.lengths.listed.empty(), "listed");
    see(c.lengths.form == lengths_spec::kind::uniform, "uniform");
    see(c.lengths.form == lengths_spec::kind::grids, "grids");
    see(name(c).find("/m3") != std::string::npos, "named shape");
    std::int64_t rows = 0;
    for (const auto& s : sequences(c)) {
      rows += s.q_len;
      see(s.q_len > s.kv_len && s.kv_len > 0, "padding rows");
      see(s.q_len == 0 && s.kv_len > 0, "no query tokens");
      see(s.kv_len == 0, "no keys");
    }
    see(rows == 0, "empty batch");
  }
  for (const auto& each : wanted) EXPECT_TRUE(seen.contains(each)) << each;
}

shrunk shrink_to_the_end(const std::string& from, const std::function<bool(const case_spec&)>& still_fails) {
  const shrunk result = shrink(parse_case(from), still_fails, [] { return true; });
  EXPECT_TRUE(result.finished);
  EXPECT_TRUE(still_fails(result.smallest));
  return result;
}

constexpr const char* large =
    "attend/h15x3.d128.di64.b64.k6.l2.i1/q3.n300_q0.n5_q7.n1K_q1.n129/bf16.paged/needle/page16/scale0.05/stride/slack/"
    "lenient/s77";

TEST(shrink, ends_at_the_smallest_case_there_is) {
  const auto result = shrink_to_the_end(large, [](const case_spec&) { return true; });
  EXPECT_EQ(name(result.smallest), "attend/h1x1.d1.b1.k1.l0.i0/q1.n1/fp32.contig/random/s0");
}

TEST(shrink, keeps_what_the_failure_needs) {
  const auto long_and_paged = [](const case_spec& c) {
    bool is_long = false;
    for (const auto& s : sequences(c)) is_long |= s.kv_len > 100 && s.q_len > 1;
    return is_long && c.layout == page_layout::paged && c.shape.hq > c.shape.hkv;
  };
  const auto result = shrink_to_the_end(large, long_and_paged);
  EXPECT_EQ(name(result.smallest), "attend/h2x1.d1.b1.k1.l0.i0/q2.n101/fp32.paged/random/s0");
  for (const auto& c : simpler_cases(result.smallest)) EXPECT_FALSE(long_and_paged(c)) << name(c);
}

TEST(shrink, of_vision_and_of_parts) {
  EXPECT_EQ(
      name(shrink_to_the_end("vit_attend/m3/g9x4x6_1x2x4/bf16/key_code.high/window2/s3",
                             [](const case_spec& c) { return c.lengths.grids.size() == 1 && c.lengths.grids[0].w > 3; })
               .smallest),
      "vit_attend/h1x1.d1.b1.k1.l0.i0/g1x2x4/fp32/random/s0");
  EXPECT_EQ(name(shrink_to_the_end("combine/m3.tp4/q3.n300_q0.n5/fp16/partials.tiny/split9/part16/s3",
                                   [](const case_spec& c) { return c.options.splits > 2; })
                     .smallest),
            "combine/h1x1.d1.b1.k1.l0.i0/q1.n1/fp32/partials.random/split3/s0");
}

TEST(shrink, stops_when_it_may_not_go_on) {
  int left = 5;
  const auto result = shrink(parse_case(large), [](const case_spec&) { return true; }, [&] { return left-- > 0; });
  EXPECT_FALSE(result.finished);
  EXPECT_EQ(result.tried, 5);
}

// Ends its process in every case of an operator that sees more keys than it can take.
class fragile_executor : public executor {
 public:
  implementation_record info() override { return {"fragile", "1", "", "", ""}; }
  observation query(const problem& p) override {
    observation answer;
    capability c;
    numerics& n = c.declared;
    n.operand = n.v_operand = n.out_store = p.q;
    n.score_acc = n.score_store = n.p_operand = n.pv_acc = n.partial_store = n.ds_operand = fp32;
    answer.answered = c;
    if (p.operation != op::select) answer.result = outcome::unsupported;
    return answer;
  }
  observation execute(input_set& set, const run_spec&) override {
    observation seen;
    seen.result = outcome::crashed;
    seen.entry = "run";
    seen.message = set.agreed.max_kv_len > 40 ? "signal 11" : "signal 4";
    return seen;
  }
};

TEST(fuzz, shrinks_one_failure_of_each_kind_and_counts_the_rest) {
  fragile_executor on;
  run_record run;
  int told = 0, shrunk = 0;
  fuzz(on, {0.3, 5, {op::select, op::combine}}, {}, run,
       {[&](const case_record&, double) { ++told; },
        [&](const found_failure&, const case_record& record) {
          ++shrunk;
          EXPECT_EQ(record.decided, verdict::crash);
        }});
  ASSERT_TRUE(run.fuzz.has_value());
  ASSERT_EQ(run.fuzz->failures.size(), 1U);
  const found_failure& found = run.fuzz->failures[0];
  EXPECT_EQ(found.what, "crash");
  EXPECT_TRUE(found.finished);
  EXPECT_EQ(found.smallest, "select/h1x1.d1.b1.k1.l0.i0/q1.n1/fp32/select.random/s0");
  EXPECT_EQ(shrunk, 1);
  EXPECT_EQ(static_cast<std::size_t>(told) + 1, run.cases.size());
  EXPECT_GT(told, 1);
  EXPECT_EQ(exit_code_of(run), 1);
  EXPECT_FALSE(run.partial);
}

TEST(fuzz, names_a_failure_by_its_first_violated_check) {
  const auto check = [](const char* id, bool gate, bool passed) {
    check_result c;
    c.id = id;
    c.gate = gate;
    c.observed = true;
    c.passed = passed;
    return c;
  };
  case_record record;
  record.decided = verdict::fail;
  record.checks = {check("K0", true, true), check("K6", false, false), check("K1", true, false),
                   check("K2", true, false)};
  EXPECT_EQ(failure_of(record), "fail K1");
  EXPECT_TRUE(fails_alike(record, "fail K2"));
  EXPECT_FALSE(fails_alike(record, "fail K0"));
  EXPECT_FALSE(fails_alike(record, "crash"));
  record.decided = verdict::broken_promise;
  EXPECT_EQ(failure_of(record), "broken-promise K1");
  EXPECT_FALSE(fails_alike(record, "fail K1"));
  record.checks.clear();
  record.reason =
      "declaration: numerics.chain_dq 17: the longest chain that this problem can make is 16; declare a shorter one";
  EXPECT_EQ(failure_of(record), "broken-promise numerics.chain_dq");
  record.reason = "plan said no";
  EXPECT_EQ(failure_of(record), "broken-promise");
  record.decided = verdict::insensitive;
  EXPECT_EQ(failure_of(record), "");
  record.decided = verdict::suite_error;
  EXPECT_EQ(failure_of(record), "suite-error");
}

}  // namespace
}  // namespace msabench

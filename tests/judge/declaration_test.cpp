// SPDX-License-Identifier: Apache-2.0
#include "judge/declaration.h"

#include <gtest/gtest.h>

#include <cmath>

#include "attend_world.h"

namespace msabench::judge::test {
namespace {

problem attend_problem(dtype q, dtype kv) {
  attend_world w({.d = 128, .block = 128, .topk = 16, .sequences = {{1, 4000}}, .type = q == e4m3 ? bf16 : q});
  w.agreed.q = q;
  w.agreed.kv = kv;
  return w.agreed;
}

std::vector<std::string> broken(const problem& p, const numerics& n, const profile& f = {}) {
  return broken_declarations(p, n, f);
}

TEST(declaration, defaults_are_the_documented_ones) {
  const auto r = resolve(attend_problem(bf16, bf16), honest_numerics(bf16));
  EXPECT_EQ(r.u_o, 0x1p-8);
  EXPECT_EQ(r.u_p, 0x1p-8);
  EXPECT_EQ(r.u_a, 0);
  EXPECT_EQ(r.u_s, 0);
  EXPECT_EQ(r.u_in, 0);
  EXPECT_EQ(r.u_v, 0);
  EXPECT_EQ(r.u_m_score, 0x1p-23);
  EXPECT_EQ(r.u_m_out, 0x1p-23);
  EXPECT_EQ(r.c_e, 0x1p-22);
  EXPECT_EQ(r.c_l, 0x1p-22);
  EXPECT_EQ(r.omega_o, 0x1p-126);
  EXPECT_EQ(r.kappa_s, 130);
  EXPECT_EQ(r.kappa_o(2048), 2048);
  EXPECT_EQ(r.kappa_l(2048), 128 + 16);
  EXPECT_EQ(r.kappa_l(5), 5);
  EXPECT_EQ(r.kappa_l(1), 1);
}

// A correctly rounded subnormal is off by more than u_o of it, and a device may flush it.
TEST(declaration, results_below_the_normal_range_are_within_their_allowance) {
  for (const dtype t : {bf16, fp16, fp32}) {
    const auto r = resolve(attend_problem(t, t), honest_numerics(t));
    bool off_by_more_than_roundoff = false;
    for (const double steps : {0.3, 0.5, 1.4, 2.5, 77.3}) {
      const double x = steps * smallest_subnormal(t), rounded = std::nearbyint(steps) * smallest_subnormal(t);
      EXPECT_LE(std::abs(rounded - x), r.u_o * x + r.omega_o) << steps;
      off_by_more_than_roundoff |= std::abs(rounded - x) > r.u_o * x;
      if (t != fp16) {
        EXPECT_LE(x, r.omega_o) << "flushed";
      }
    }
    EXPECT_TRUE(off_by_more_than_roundoff);
  }
}

TEST(declaration, truncation_counts_double_and_widening_is_exact) {
  auto n = honest_numerics(bf16);
  n.truncated = truncates_out | truncates_p;
  n.operand = n.v_operand = fp32;
  const auto r = resolve(attend_problem(bf16, bf16), n);
  EXPECT_EQ(r.u_o, 0x1p-7);
  EXPECT_EQ(r.u_p, 0x1p-7);
  EXPECT_EQ(r.u_v, 0);
  EXPECT_TRUE(broken(attend_problem(bf16, bf16), n).empty());
  n.v_operand = fp16;
  EXPECT_EQ(resolve(attend_problem(bf16, bf16), n).u_v, 0x1p-11);
}

TEST(declaration, single_precision_operands_accumulate_to_nearest) {
  auto n = honest_numerics(fp32);
  EXPECT_EQ(resolve(attend_problem(fp32, fp32), n).u_m_out, 0x1p-24);
  n.p_operand = tf32;
  EXPECT_EQ(resolve(attend_problem(fp32, fp32), n).u_m_out, 0x1p-23);
}

TEST(declaration, an_output_is_never_finer_than_its_tensor) {
  auto n = honest_numerics(bf16);
  n.out_store = fp32;
  EXPECT_EQ(resolve(attend_problem(bf16, bf16), n).u_o, 0x1p-8);
}

TEST(declaration, chains_are_capped_by_what_a_row_can_make) {
  auto n = honest_numerics(bf16);
  n.chain_out = 300;
  n.chain_row_sum = 40;
  n.chain_score = 9;
  const auto r = resolve(attend_problem(bf16, bf16), n);
  EXPECT_EQ(r.kappa_s, 9);
  EXPECT_EQ(r.kappa_o(2048), 300);
  EXPECT_EQ(r.kappa_o(10), 20);
  EXPECT_EQ(r.kappa_l(2048), 40);
  EXPECT_EQ(r.kappa_l(3), 3);
}

struct claim {
  std::string field;
  void (*make)(numerics&);
};

TEST(caps, every_field_has_one) {
  const claim claims[] = {
      {"numerics.out_store", [](numerics& n) { n.out_store = e4m3; }},
      {"numerics.p_operand", [](numerics& n) { n.p_operand = e4m3; }},
      {"numerics.partial_store", [](numerics& n) { n.partial_store = e4m3; }},
      {"numerics.partial_store", [](numerics& n) { n.partial_store = bf16, n.truncated = truncates_partial; }},
      {"numerics.score_store", [](numerics& n) { n.score_store = bf16, n.truncated = truncates_score; }},
      {"numerics.operand", [](numerics& n) { n.operand = e4m3, n.rounded_operands = 2; }},
      {"numerics.v_operand", [](numerics& n) { n.v_operand = e4m3; }},
      {"numerics.v_operand", [](numerics& n) { n.v_operand = fp16; }},
      {"numerics.score_acc", [](numerics& n) { n.score_acc = fp16; }},
      {"numerics.pv_acc", [](numerics& n) { n.pv_acc = bf16; }},
      {"numerics.pv_acc", [](numerics& n) { n.pv_acc = fp8_acc; }},
      {"numerics.exp_rel_error", [](numerics& n) { n.exp_rel_error = 0x1p-17F; }},
      {"numerics.exp_rel_error", [](numerics& n) { n.exp_rel_error = std::nanf(""); }},
      {"numerics.exp_rel_error", [](numerics& n) { n.exp_rel_error = -0x1p-22F; }},
      {"numerics.log_abs_error", [](numerics& n) { n.log_abs_error = 0x1p-21F; }},
      {"numerics.log_abs_error", [](numerics& n) { n.log_abs_error = INFINITY; }},
      {"numerics.chain_score", [](numerics& n) { n.chain_score = 131; }},
      {"numerics.chain_out", [](numerics& n) { n.chain_out = 4000000000U; }},
      {"numerics.chain_row_sum", [](numerics& n) { n.chain_row_sum = 2049; }},
      {"numerics.rounded_operands", [](numerics& n) { n.rounded_operands = 3; }},
      {"numerics.rounded_operands", [](numerics& n) { n.operand = e4m3; }},
      {"numerics.lse_from_rounded_p", [](numerics& n) { n.lse_from_rounded_p = 2; }},
      {"numerics.truncated", [](numerics& n) { n.truncated = 128; }},
      {"numerics.p_operand", [](numerics& n) { n.p_operand = {7, 8, 1}; }},
      {"numerics.pv_acc", [](numerics& n) { n.pv_acc = {0, 0, 0}; }},
      {"numerics.score_acc", [](numerics& n) { n.score_acc = i32; }},
  };
  const auto p = attend_problem(bf16, bf16);
  ASSERT_TRUE(broken(p, honest_numerics(bf16)).empty());
  for (const auto& c : claims) {
    auto n = honest_numerics(bf16);
    c.make(n);
    const auto lines = broken(p, n);
    ASSERT_EQ(lines.size(), 1U) << c.field << (lines.empty() ? "" : ": " + lines[0] + " | " + lines.back());
    EXPECT_EQ(lines[0].rfind(c.field + " ", 0), 0U) << lines[0];
    EXPECT_NE(lines[0].find("; "), std::string::npos) << lines[0];
  }
}

TEST(caps, the_default_chain_may_be_written_out) {
  attend_world w({.block = 16, .topk = 1});
  w.declared.chain_row_sum = 17;
  EXPECT_TRUE(broken(w.agreed, w.declared).empty());
  w.declared.chain_row_sum = 18;
  EXPECT_EQ(broken(w.agreed, w.declared).size(), 1U);
}

TEST(caps, one_chain_of_msa_is_as_long_as_its_longer_branch) {
  auto p = attend_problem(bf16, bf16);
  p.operation = op::msa;
  auto n = honest_numerics(bf16);
  for (const auto& [d, di] : {std::pair(64, 128), std::pair(128, 64)}) {
    p.d = d;
    p.di = di;
    n.chain_score = 130;
    EXPECT_TRUE(broken(p, n).empty());
    n.chain_score = 131;
    EXPECT_EQ(broken(p, n).size(), 1U);
  }
}

TEST(caps, the_format_of_fp8_accumulators_belongs_to_accumulators) {
  const auto p = attend_problem(e4m3, e4m3);
  for (dtype numerics::* field : {&numerics::operand, &numerics::v_operand, &numerics::score_store,
                                  &numerics::p_operand, &numerics::partial_store, &numerics::out_store}) {
    auto n = honest_numerics(bf16);
    n.*field = fp8_acc;
    const auto lines = broken(p, n);
    ASSERT_FALSE(lines.empty());
    EXPECT_NE(lines[0].find("accumulators"), std::string::npos) << lines[0];
  }
  auto n = honest_numerics(bf16);
  n.score_acc = n.pv_acc = fp8_acc;
  EXPECT_TRUE(broken(p, n).empty());
}

TEST(caps, the_line_tells_field_value_and_cap) {
  auto n = honest_numerics(bf16);
  n.p_operand = e4m3;
  EXPECT_EQ(
      broken(attend_problem(bf16, bf16), n).at(0),
      "numerics.p_operand e4m3: roundoff 2^-4 is above the cap 2^-8 for bf16 problems; compute more precisely, or "
      "answer MSABENCH_UNSUPPORTED");
}

TEST(caps, follow_the_storage_type) {
  auto n = honest_numerics(bf16);
  n.operand = n.v_operand = fp16;
  n.rounded_operands = 0;
  // bf16 output and P are too coarse for fp16 problems, and everything short is for fp32 ones.
  EXPECT_EQ(broken(attend_problem(fp16, fp16), n).size(), 2U);
  n.operand = n.v_operand = fp32;
  EXPECT_EQ(broken(attend_problem(fp32, fp32), n).size(), 2U);
  EXPECT_TRUE(broken(attend_problem(fp32, fp32), honest_numerics(fp32)).empty());
  auto truncating = honest_numerics(fp32);
  truncating.truncated = truncates_out;
  EXPECT_EQ(broken(attend_problem(fp32, fp32), truncating).size(), 1U);
}

TEST(caps, profile_enumerators_and_steps) {
  const auto p = attend_problem(bf16, bf16);
  profile f;
  f.lse = static_cast<lse_form>(3);
  EXPECT_EQ(broken(p, honest_numerics(bf16), f).size(), 1U);
  f = {};
  f.in_id_order = id_order::none;
  EXPECT_EQ(broken(p, honest_numerics(bf16), f).size(), 1U);
  f = {};
  f.rank_step = std::nanf("");
  EXPECT_EQ(broken(p, honest_numerics(bf16), f).size(), 1U);
}

TEST(caps, select_uses_no_formats) {
  problem p = attend_problem(bf16, bf16);
  p.operation = op::select;
  EXPECT_TRUE(broken(p, numerics{}).empty());
  numerics n;
  n.exp_rel_error = std::nanf("");
  EXPECT_EQ(broken(p, n).size(), 1U);
}

TEST(caps, msa_may_add_up_index_scores_as_e4m3_products_are) {
  auto p = attend_problem(bf16, bf16);
  p.operation = op::msa;
  auto n = honest_numerics(bf16);
  n.score_acc = fp8_acc;
  EXPECT_EQ(broken(p, n).size(), 1U);
  p.q_idx = p.k_idx = e4m3;
  EXPECT_TRUE(broken(p, n).empty()) << broken(p, n).at(0);
  EXPECT_EQ(named_declarations(p, n), std::vector<std::string>{"fp8_mma"});
  n.pv_acc = fp8_acc;  // no product of e4m3 operands
  EXPECT_EQ(broken(p, n).size(), 1U);
}

TEST(names, of_legal_unusual_declarations) {
  using names = std::vector<std::string>;
  const auto p = attend_problem(bf16, bf16), wide = attend_problem(fp32, fp32), small = attend_problem(bf16, e4m3);
  EXPECT_EQ(named_declarations(p, honest_numerics(bf16)), names{});
  auto n = honest_numerics(bf16);
  n.score_store = bf16;
  n.rounded_operands = 1;
  EXPECT_TRUE(broken(p, n).empty());
  EXPECT_EQ(named_declarations(p, n), (names{"score16", "prescaled_q"}));
  n = honest_numerics(fp32);
  n.operand = n.v_operand = n.p_operand = tf32;
  n.rounded_operands = 2;
  EXPECT_TRUE(broken(wide, n).empty());
  EXPECT_EQ(named_declarations(wide, n), names{"tf32"});
  n = honest_numerics(bf16);
  n.p_operand = e4m3;
  n.v_operand = e4m3;
  n.pv_acc = fp8_acc;
  EXPECT_TRUE(broken(small, n).empty()) << broken(small, n).at(0);
  EXPECT_EQ(named_declarations(small, n), (names{"fp8_mma", "fp8_p"}));
  n = honest_numerics(bf16);
  EXPECT_EQ(named_declarations(small, n), names{"fp8_to_bf16"});
}

}  // namespace
}  // namespace msabench::judge::test

// SPDX-License-Identifier: Apache-2.0
#include "judge/declaration.h"

#include <algorithm>
#include <limits>

#include "core/dtype.h"

namespace msabench::judge {
namespace {

bool fp8(dtype t) { return t == e4m3; }

double roundoff(dtype t) { return known(t) && t != i32 ? unit_roundoff(t) : u32; }

// Every value of `from` is one of `to`. An fp8 value is multiplied by its scale on the way, which only fp8 itself
// survives.
bool widens_exactly(dtype from, dtype to) {
  if (from == to) return true;
  if (!known(from) || !known(to) || fp8(from)) return false;
  return unit_roundoff(to) <= unit_roundoff(from) && max_finite(to) >= max_finite(from) &&
         smallest_subnormal(to) <= smallest_subnormal(from);
}

bool at_least_fp32(dtype t) { return roundoff(t) <= u32; }

// Matrix units that take short operands add their products with truncation, so fp32 there counts double.
double accumulator(dtype acc, bool short_operands) { return acc == fp32 && short_operands ? 2 * u32 : roundoff(acc); }

// The output tensor's own type is the finest that any store can keep.
dtype stored_output(const problem& p, const numerics& n) {
  return roundoff(n.out_store) < roundoff(p.out) ? p.out : n.out_store;
}

// With the exponents of single precision nothing but subnormals is lost, and a device may flush those to zero.
double lost_to_underflow(dtype t, bool truncates) {
  if (!known(t)) return 0;
  if (t == bf16 || t == tf32 || at_least_fp32(t)) return 0x1p-126;
  return smallest_subnormal(t) * (truncates ? 1.0 : 0.5);
}

}  // namespace

score_branch index_branch_of(const problem& p, const numerics& n) {
  score_branch b{p, n};
  b.p.q = p.q_idx;
  b.p.kv = b.n.v_operand = p.k_idx;
  b.p.out = b.n.out_store = b.n.p_operand = b.n.pv_acc = b.n.partial_store = fp32;
  b.p.d = p.di;
  b.p.splits = 0;
  b.n.chain_out = 0;
  if (p.operation == op::score) b.n.chain_row_sum = 0;
  return b;
}

double gamma(std::int64_t k, double u) {
  const double ku = static_cast<double>(k) * u;
  return ku >= 0.5 ? std::numeric_limits<double>::infinity() : ku / (1 - ku);
}

std::int64_t usual_row_sum(std::int64_t n) { return std::min<std::int64_t>(n, 128) + (n + 127) / 128; }

std::int64_t roundoffs::kappa_o(std::int64_t n) const {
  const std::int64_t longest = n + (splits > 0 ? splits : std::min(n, most_free_splits));
  return declared_o > 0 ? std::min(declared_o, longest) : n + splits;
}

std::int64_t roundoffs::kappa_l(std::int64_t n) const {
  return std::min(declared_l > 0 ? declared_l : usual_row_sum(n), n);
}

roundoffs resolve(const problem& p, const numerics& n) {
  const auto u_of = [&](dtype t, std::uint32_t bit) { return roundoff(t) * ((n.truncated & bit) != 0 ? 2 : 1); };

  roundoffs r;
  r.u_o = u_of(stored_output(p, n), truncates_out);
  r.u_p = u_of(n.p_operand, truncates_p);
  r.u_a = at_least_fp32(n.partial_store) ? 0 : u_of(n.partial_store, truncates_partial);
  r.u_s = at_least_fp32(n.score_store) ? 0 : u_of(n.score_store, truncates_score);
  r.n_in = n.rounded_operands;
  r.u_in = r.n_in > 0 ? u_of(n.operand, truncates_operand) : 0;
  r.u_v = widens_exactly(p.kv, n.v_operand) ? 0 : u_of(n.v_operand, truncates_v);
  r.u_m_score = accumulator(n.score_acc, !at_least_fp32(n.operand));
  r.u_m_out = accumulator(n.pv_acc, !at_least_fp32(n.p_operand) || !at_least_fp32(n.v_operand));
  r.c_e = n.exp_rel_error == 0 ? 0x1p-22 : static_cast<double>(n.exp_rel_error);
  r.c_l = n.log_abs_error == 0 ? 0x1p-22 : static_cast<double>(n.log_abs_error);
  r.omega_o = lost_to_underflow(stored_output(p, n), (n.truncated & truncates_out) != 0);
  // P in e4m3 is scaled by at least 256 before it is rounded.
  r.omega_p = lost_to_underflow(n.p_operand, (n.truncated & truncates_p) != 0) / (fp8(n.p_operand) ? 256 : 1);
  r.u_ds = u_of(n.ds_operand, truncates_ds);
  r.omega_ds = lost_to_underflow(n.ds_operand, (n.truncated & truncates_ds) != 0);
  r.lse_from_rounded_p = n.lse_from_rounded_p != 0;

  // fp8 matrix instructions add 32 products at once.
  const std::int64_t longest_s = p.d + 2;
  const std::int64_t usual_s = n.score_acc == fp8_acc ? p.d / 32 + 1 : longest_s;
  r.kappa_s = std::min(n.chain_score > 0 ? std::int64_t{n.chain_score} : usual_s, longest_s);
  r.declared_o = n.chain_out;
  r.declared_l = n.chain_row_sum;
  r.declared_dq = n.chain_dq;
  r.declared_dkv = n.chain_dkv;
  r.splits = p.splits;
  return r;
}

}  // namespace msabench::judge

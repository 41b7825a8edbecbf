// SPDX-License-Identifier: Apache-2.0
// What may be declared: caps per storage type of q, and the names of legal unusual declarations.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/case.h"
#include "core/error.h"
#include "judge/declaration.h"
#include "judge/judge.h"

namespace msabench::judge {
namespace {

struct caps {
  double store;  // output, P: to nearest; twice that truncated where `truncation`
  bool truncation;
  double partial;                             // u_a
  double score;                               // u_s
  double operand;                             // u_in
  double v_operand;                           // u_v
  double p_operand;                           // u_p beyond `store`, by name
  double score_accumulator, out_accumulator;  // u_m
};

// Of msa one accumulator is declared for the scores of both branches.
bool any_fp8(const problem& p) { return p.q == e4m3 || p.kv == e4m3 || (p.operation == op::msa && p.k_idx == e4m3); }

caps caps_for(const problem& p) {
  caps c{};
  const bool narrow = p.q == fp16 || p.q == bf16 || p.q == e4m3;
  if (narrow) {
    c.store = p.q == fp16 ? 0x1p-11 : 0x1p-8;
    c.truncation = true;
    c.partial = c.store;
    c.score = 0x1p-8;                                      // score16
    c.operand = 0x1p-8;                                    // prescaled_q, fp8_to_bf16
    c.v_operand = p.kv == e4m3 ? 0x1p-8 : 0;               // fp8_to_bf16
    c.p_operand = p.kv == e4m3 ? 0x1p-4 : 0;               // fp8_p
    c.score_accumulator = any_fp8(p) ? 0x1p-13 : 0x1p-23;  // fp8_mma
    c.out_accumulator = p.kv == e4m3 ? 0x1p-13 : 0x1p-23;
  } else {
    c.store = 0x1p-24;
    c.operand = c.v_operand = c.p_operand = 0x1p-10;    // tf32
    c.score_accumulator = c.out_accumulator = 0x1p-23;  // tf32: reached by short operands only
  }
  return c;
}

std::string power(double u) {
  if (u == 0) return "0";
  const double e = std::log2(u);
  return e == std::floor(e) ? fmt::format("2^{}", static_cast<int>(e)) : fmt::format("{:.3g}", u);
}

std::string spelled(dtype t) {
  return known(t) ? std::string(name(t)) : fmt::format("{{{},{},{}}}", t.code, t.bits, t.lanes);
}

class claims {
 public:
  explicit claims(dtype storage) : storage_(name(storage)) {}
  std::vector<std::string> broken;

  void add(std::string_view field, std::string value, std::string problem, std::string remedy) {
    broken.push_back(diagnostic{std::string(field), std::move(value), std::move(problem), std::move(remedy)}.line());
  }

  bool format(std::string_view field, dtype t, bool accumulator = false) {
    if (known(t) && t != i32 && (accumulator || t != fp8_acc)) return true;
    add(field, spelled(t),
        t == fp8_acc ? "only accumulators have this format" : "no floating-point format that the suite knows",
        fmt::format("declare bf16, fp16, tf32, e4m3, {}fp32 or fp64", accumulator ? "fp8acc, " : ""));
    return false;
  }

  void roundoff(std::string_view field, dtype t, double got, double cap) {
    if (got <= cap) return;
    add(field, spelled(t),
        fmt::format("roundoff {} is above the cap {} for {} problems", power(got), power(cap), storage_),
        "compute more precisely, or answer MSABENCH_UNSUPPORTED");
  }

  void chain(std::string_view field, std::uint32_t got, std::int64_t longest) {
    if (got <= longest) return;
    add(field, std::to_string(got), fmt::format("the longest chain that this problem can make is {}", longest),
        "declare a shorter one, or 0 for the default");
  }

  void error(std::string_view field, float got, double cap) {
    if (got >= 0 && got <= cap) return;
    add(field, fmt::format("{}", got), fmt::format("not within 0 .. {}", power(cap)),
        "declare the largest error, or 0 for the default");
  }

  template <class Enum>
  void choice(std::string_view field, Enum got, int last) {
    const int value = static_cast<int>(got);
    if (value < 0 || value > last)
      add(field, std::to_string(value), fmt::format("not within 0 .. {}", last), "use the enumerators of plugin.h");
  }

  void at_most(std::string_view field, std::uint32_t got, std::uint32_t last) {
    if (got > last) add(field, std::to_string(got), fmt::format("not within 0 .. {}", last), "see plugin.h");
  }

 private:
  std::string storage_;
};

void check_profile(claims& c, const profile& f) {
  // Ids that a caller hands in always exist, so `none` is an output order only.
  c.choice("profile.in_id_order", f.in_id_order, static_cast<int>(id_order::any));
  c.choice("profile.in_id_layout", f.in_id_layout, static_cast<int>(id_layout::htk));
  c.choice("profile.in_id_form", f.in_id_form, static_cast<int>(id_form::lenient));
  c.choice("profile.out_id_order", f.out_id_order, static_cast<int>(id_order::none));
  c.choice("profile.out_id_layout", f.out_id_layout, static_cast<int>(id_layout::htk));
  c.choice("profile.score_unit", f.unit, static_cast<int>(score_unit::raw));
  c.choice("profile.score_own", f.score_own, static_cast<int>(score_fill::unwritten));
  c.choice("profile.score_tail", f.score_tail, static_cast<int>(score_fill::unwritten));
  c.choice("profile.nan_score", f.nan_score, static_cast<int>(nan_policy::propagate));
  c.choice("profile.lse", f.lse, static_cast<int>(lse_form::none));
  c.choice("profile.empty_row", f.empty_row, static_cast<int>(empty_form::undefined));
  c.error("profile.rank_step", f.rank_step, 1);
}

// Operators whose limits are made of declared formats.
bool declares_formats(op o) {
  switch (o) {
    case op::attend:
    case op::dense:
    case op::msa:
    case op::attend_backward:
    case op::dense_backward:
    case op::kl:
    case op::vit3d:
    case op::vit_attend:
    case op::rope3d:
    case op::combine:
    case op::qk_norm_rope:
      return true;
    default:
      return false;
  }
}

bool has_index_branch_alone(op o) { return o == op::score || o == op::index; }

// Keys that a row may have. Tiles are padded, so a bound of the lengths below one tile does not shorten a chain.
std::int64_t most_keys(const problem& p) {
  if (p.operation == op::attend || p.operation == op::msa || p.operation == op::index ||
      p.operation == op::attend_backward || (p.operation == op::kl && p.kl_warm_up == 0))
    return std::int64_t{p.topk} * p.block;
  return p.max_kv_len + 128;
}

void check_formats(claims& c, const problem& p, const numerics& n) {
  const caps cap = caps_for(p);
  const roundoffs r = resolve(p, n);
  const auto store = [&](std::uint32_t bit) {
    return cap.truncation && (n.truncated & bit) != 0 ? 2 * cap.store : cap.store;
  };
  if (c.format("numerics.operand", n.operand)) {
    c.roundoff("numerics.operand", n.operand, r.u_in, cap.operand);
    if (n.rounded_operands == 0 && unit_roundoff(n.operand) > unit_roundoff(p.q))
      c.add("numerics.rounded_operands", "0",
            fmt::format("q is {} and the operand {}, so something is rounded", name(p.q), name(n.operand)),
            "declare how many of q and k are");
  }
  if (c.format("numerics.v_operand", n.v_operand)) c.roundoff("numerics.v_operand", n.v_operand, r.u_v, cap.v_operand);
  if (c.format("numerics.score_store", n.score_store))
    c.roundoff("numerics.score_store", n.score_store, r.u_s, cap.score);
  if (c.format("numerics.p_operand", n.p_operand))
    c.roundoff("numerics.p_operand", n.p_operand, r.u_p, std::max(store(truncates_p), cap.p_operand));
  if (trains(p.operation) && c.format("numerics.ds_operand", n.ds_operand))
    c.roundoff("numerics.ds_operand", n.ds_operand, r.u_ds, std::max(store(truncates_ds), cap.p_operand));
  if (c.format("numerics.partial_store", n.partial_store))
    c.roundoff("numerics.partial_store", n.partial_store, r.u_a, cap.partial);
  if (c.format("numerics.out_store", n.out_store))
    c.roundoff("numerics.out_store", n.out_store, r.u_o, store(truncates_out));
  if (c.format("numerics.score_acc", n.score_acc, true))
    c.roundoff("numerics.score_acc", n.score_acc, r.u_m_score, cap.score_accumulator);
  if (c.format("numerics.pv_acc", n.pv_acc, true))
    c.roundoff("numerics.pv_acc", n.pv_acc, r.u_m_out, cap.out_accumulator);
}

void check_chains(claims& c, const problem& p, const numerics& n) {
  const std::int64_t keys = most_keys(p);
  // One number for both branches of msa and kl: each takes it as far as its own products go.
  const bool has_both = p.operation == op::msa || p.operation == op::kl;
  const std::int64_t products = has_both ? std::max(p.d, p.di) : p.d;
  c.chain("numerics.chain_score", n.chain_score, products + 2);
  c.chain("numerics.chain_out", n.chain_out, keys + (p.splits > 0 ? p.splits : most_free_splits));
  // A few keys make no chain as long as the default's own formula, which may be declared all the same.
  c.chain("numerics.chain_row_sum", n.chain_row_sum, std::max(keys, usual_row_sum(keys)));
  if (!trains(p.operation)) return;
  c.chain("numerics.chain_dq", n.chain_dq, keys);
  // Tiles of rows are padded as those of keys are.
  const std::int64_t heads = p.operation == op::kl ? p.hi : p.group();
  c.chain("numerics.chain_dkv", n.chain_dkv, (p.max_q_len + 128) * std::max<std::int64_t>(1, heads));
}

}  // namespace

std::vector<std::string> broken_declarations(const problem& p, const numerics& n, const profile& f) {
  claims c(p.q);
  check_profile(c, f);
  c.error("numerics.exp_rel_error", n.exp_rel_error, 0x1p-18);
  c.error("numerics.log_abs_error", n.log_abs_error, 0x1p-22);
  c.at_most("numerics.rounded_operands", n.rounded_operands, 2);
  c.at_most("numerics.lse_from_rounded_p", n.lse_from_rounded_p, 1);
  c.at_most("numerics.truncated", n.truncated, 127);
  if (declares_formats(p.operation)) {
    check_formats(c, p, n);
    check_chains(c, p, n);
  }
  if (has_index_branch_alone(p.operation)) {
    const score_branch branch = index_branch_of(p, n);
    check_formats(c, branch.p, branch.n);
    check_chains(c, branch.p, branch.n);
  }
  return std::move(c.broken);
}

std::vector<std::string> named_declarations(const problem& given, const numerics& declared) {
  const auto [p, n] =
      has_index_branch_alone(given.operation) ? index_branch_of(given, declared) : score_branch{given, declared};
  std::vector<std::string> names;
  if (!declares_formats(p.operation) && !has_index_branch_alone(p.operation)) return names;
  const roundoffs r = resolve(p, n);
  const bool wide = p.q == fp32;
  const auto beyond_fp32 = [](double u) { return u > u32; };
  if (r.u_s > 0) names.emplace_back("score16");
  if (wide && (beyond_fp32(r.u_in) || beyond_fp32(r.u_v) || beyond_fp32(r.u_p))) names.emplace_back("tf32");
  // Scaled values that are kept in fp32 are rounded too, but not to a short format.
  if ((any_fp8(p) && beyond_fp32(r.u_in) && n.operand != e4m3) || (p.kv == e4m3 && beyond_fp32(r.u_v)))
    names.emplace_back("fp8_to_bf16");
  else if (r.n_in > 0 && !(wide && beyond_fp32(r.u_in)) && !(any_fp8(p) && !beyond_fp32(r.u_in)))
    names.emplace_back("prescaled_q");
  if (n.score_acc == fp8_acc || n.pv_acc == fp8_acc) names.emplace_back("fp8_mma");
  if (n.p_operand == e4m3) names.emplace_back("fp8_p");
  return names;
}

}  // namespace msabench::judge

// SPDX-License-Identifier: Apache-2.0
#include "host/worker/conversions.h"

#include <fmt/format.h>

#include <cmath>

#include "core/observation.h"

namespace msabench {
namespace {

template <class Enum>
constexpr bool same(Enum ours, int theirs) {
  return static_cast<int>(ours) == theirs;
}

static_assert(same(op::qk_norm_rope, MSABENCH_OP_QK_NORM_ROPE) && same(op::score, MSABENCH_OP_SCORE) &&
              same(op::select, MSABENCH_OP_SELECT) && same(op::attend, MSABENCH_OP_ATTEND) &&
              same(op::dense, MSABENCH_OP_DENSE) && same(op::msa, MSABENCH_OP_MSA) &&
              same(op::combine, MSABENCH_OP_COMBINE) && same(op::attend_backward, MSABENCH_OP_ATTEND_BACKWARD) &&
              same(op::dense_backward, MSABENCH_OP_DENSE_BACKWARD) && same(op::kl, MSABENCH_OP_KL) &&
              same(op::vit3d, MSABENCH_OP_VIT3D) && same(op::index, MSABENCH_OP_INDEX) &&
              same(op::rope3d, MSABENCH_OP_ROPE3D) && same(op::vit_attend, MSABENCH_OP_VIT_ATTEND));

static_assert(same(slot::q, MSABENCH_Q) && same(slot::k, MSABENCH_K) && same(slot::v, MSABENCH_V) &&
              same(slot::q_idx, MSABENCH_Q_IDX) && same(slot::k_idx, MSABENCH_K_IDX) &&
              same(slot::cu_seqlens_q, MSABENCH_CU_SEQLENS_Q) && same(slot::kv_lens, MSABENCH_KV_LENS) &&
              same(slot::cu_seqlens_kv, MSABENCH_CU_SEQLENS_KV) && same(slot::block_table, MSABENCH_BLOCK_TABLE) &&
              same(slot::ids, MSABENCH_IDS) && same(slot::scores, MSABENCH_SCORES) && same(slot::out, MSABENCH_OUT) &&
              same(slot::lse, MSABENCH_LSE) && same(slot::partial_out, MSABENCH_PARTIAL_OUT) &&
              same(slot::partial_lse, MSABENCH_PARTIAL_LSE) && same(slot::d_out, MSABENCH_D_OUT) &&
              same(slot::dq, MSABENCH_DQ) && same(slot::dk, MSABENCH_DK) && same(slot::dv, MSABENCH_DV) &&
              same(slot::dq_idx, MSABENCH_DQ_IDX) && same(slot::dk_idx, MSABENCH_DK_IDX) &&
              same(slot::loss, MSABENCH_LOSS));
static_assert(same(slot::q_norm, MSABENCH_Q_NORM) && same(slot::k_norm, MSABENCH_K_NORM) &&
              same(slot::q_idx_norm, MSABENCH_Q_IDX_NORM) && same(slot::k_idx_norm, MSABENCH_K_IDX_NORM) &&
              same(slot::q_rope, MSABENCH_Q_ROPE) && same(slot::k_rope, MSABENCH_K_ROPE) &&
              same(slot::q_idx_rope, MSABENCH_Q_IDX_ROPE) && same(slot::k_idx_rope, MSABENCH_K_IDX_ROPE) &&
              same(slot::lse_idx, MSABENCH_LSE_IDX) && same(slot::k_scale, MSABENCH_K_SCALE) &&
              same(slot::v_scale, MSABENCH_V_SCALE) && same(slot::k_idx_scale, MSABENCH_K_IDX_SCALE) &&
              same(slot::q_idx_scale, MSABENCH_Q_IDX_SCALE) && same(slot::cos_sin, MSABENCH_COS_SIN) &&
              same(slot::block_table_idx, MSABENCH_BLOCK_TABLE_IDX) && same(slot::grids, MSABENCH_GRIDS) &&
              same(slot::positions, MSABENCH_POSITIONS) && same(slot::cu_segments, MSABENCH_CU_SEGMENTS) &&
              same(slot::q_scale, MSABENCH_Q_SCALE) && slot_count == MSABENCH_SLOT_COUNT_1_0);

static_assert(same(id_order::ascending, MSABENCH_ORDER_ASCENDING) && same(id_order::score, MSABENCH_ORDER_SCORE) &&
              same(id_order::local_last, MSABENCH_ORDER_LOCAL_LAST) && same(id_order::any, MSABENCH_ORDER_ANY) &&
              same(id_order::none, MSABENCH_ORDER_NONE) && same(id_layout::thk, MSABENCH_LAYOUT_THK) &&
              same(id_layout::htk, MSABENCH_LAYOUT_HTK) && same(id_form::exact, MSABENCH_FORM_EXACT) &&
              same(id_form::short_rows, MSABENCH_FORM_SHORT) && same(id_form::lenient, MSABENCH_FORM_LENIENT) &&
              same(score_unit::scaled, MSABENCH_SCORE_SCALED) && same(score_unit::raw, MSABENCH_SCORE_RAW) &&
              same(score_fill::value, MSABENCH_SCORE_VALUE) && same(score_fill::sentinel, MSABENCH_SCORE_SENTINEL) &&
              same(score_fill::unwritten, MSABENCH_SCORE_UNWRITTEN) && same(nan_policy::ignore, MSABENCH_NAN_IGNORE) &&
              same(nan_policy::propagate, MSABENCH_NAN_PROPAGATE) && same(lse_form::natural, MSABENCH_LSE_NATURAL) &&
              same(lse_form::base2, MSABENCH_LSE_BASE2) && same(lse_form::none, MSABENCH_LSE_NONE) &&
              same(empty_form::zero, MSABENCH_EMPTY_ZERO) && same(empty_form::undefined, MSABENCH_EMPTY_UNDEFINED));
static_assert(same(page_layout::contiguous, 0) && same(page_layout::paged, 1) && same(page_layout::fused, 2));
static_assert(same(device_type::cpu, 1) && same(device_type::cuda, 2));

template <class Enum>
msabench_choice choice(Enum e) {
  return static_cast<msabench_choice>(e);
}

// Reads fields one after the other; `wrong` keeps the first complaint.
struct reader {
  std::string wrong;

  void complain(std::string text) {
    if (wrong.empty()) wrong = std::move(text);
  }

  template <class Enum>
  void choice(std::string_view field, msabench_choice from, Enum& to, Enum last) {
    if (from < 0 || from > static_cast<msabench_choice>(last))
      return complain(fmt::format("profile.{} = {} is no value of that field", field, from));
    to = static_cast<Enum>(from);
  }

  void promise(std::string_view field, std::uint8_t from, bool& to) {
    if (from > 1) return complain(fmt::format("profile.{} = {} is neither 0 nor 1", field, from));
    to = from == 1;
  }

  // {0, 0, 0} stands where the operator has no use for the field.
  void format(std::string_view field, msabench_dtype from, dtype& to) {
    to = {from.code, from.bits, from.lanes};
    const bool none = from.code == 0 && from.bits == 0;
    if (!none && !known(to))
      complain(fmt::format("numerics.{} = {{{}, {}, {}}} is no known format", field, from.code, from.bits, from.lanes));
  }

  void error_term(std::string_view field, float from, float& to) {
    if (!(from >= 0) || std::isinf(from)) return complain(fmt::format("{} = {} is no error bound", field, from));
    to = from;
  }
};

}  // namespace

msabench_profile to_c(const profile& p) {
  msabench_profile c{};
  c.struct_size = sizeof c;
  c.in_id_order = choice(p.in_id_order);
  c.in_id_layout = choice(p.in_id_layout);
  c.in_id_form = choice(p.in_id_form);
  c.out_id_order = choice(p.out_id_order);
  c.out_id_layout = choice(p.out_id_layout);
  c.score_unit = choice(p.unit);
  c.score_own = choice(p.score_own);
  c.score_tail = choice(p.score_tail);
  c.nan_score = choice(p.nan_score);
  c.lse = choice(p.lse);
  c.empty_row = choice(p.empty_row);
  c.rank_step = p.rank_step;
  c.ties_low_id = p.ties_low_id;
  c.repeatable = p.repeatable;
  c.batch_invariant = p.batch_invariant;
  c.split_invariant = p.split_invariant;
  c.graph_safe = p.graph_safe;
  c.hardened = p.hardened;
  c.round_after_norm = p.round_after_norm;
  c.rotate_in_storage = p.rotate_in_storage;
  return c;
}

msabench_problem to_c(const problem& p) {
  msabench_problem c{};
  c.struct_size = sizeof c;
  c.op = static_cast<msabench_op>(p.operation);
  c.hq = p.hq;
  c.hkv = p.hkv;
  c.d = p.d;
  c.hi = p.hi;
  c.di = p.di;
  c.block = p.block;
  c.topk = p.topk;
  c.local_blocks = p.local_blocks;
  c.init_blocks = p.init_blocks;
  c.page_layout = static_cast<std::int32_t>(p.layout);
  c.page_size = p.page_size;
  c.rope_dims = p.rope_dims;
  c.batch = p.batch;
  c.total_q = p.total_q;
  c.max_q_len = p.max_q_len;
  c.max_kv_len = p.max_kv_len;
  c.total_kv = p.total_kv;
  c.pool_pages = p.pool_pages;
  c.q = to_c(p.q);
  c.kv = to_c(p.kv);
  c.q_idx = to_c(p.q_idx);
  c.k_idx = to_c(p.k_idx);
  c.out = to_c(p.out);
  c.partial = to_c(p.partial);
  c.grad = to_c(p.grad);
  c.softmax_scale = p.softmax_scale;
  c.index_scale = p.index_scale;
  c.norm_eps = p.norm_eps;
  c.rope_theta = p.rope_theta;
  c.kl_coeff = p.kl_coeff;
  c.kl_warm_up = p.kl_warm_up;
  c.splits = p.splits;
  c.vit_window = p.vit_window;
  c.kv_scale = p.kv_scale;
  c.idx_scale = p.idx_scale;
  c.profile = to_c(p.asked);
  return c;
}

std::string read_answer(const msabench_capability& from, numerics& declared, profile& delivers) {
  reader r;
  const msabench_numerics& n = from.numerics;
  r.format("operand", n.operand, declared.operand);
  r.format("v_operand", n.v_operand, declared.v_operand);
  r.format("score_acc", n.score_acc, declared.score_acc);
  r.format("score_store", n.score_store, declared.score_store);
  r.format("p_operand", n.p_operand, declared.p_operand);
  r.format("pv_acc", n.pv_acc, declared.pv_acc);
  r.format("partial_store", n.partial_store, declared.partial_store);
  r.format("out_store", n.out_store, declared.out_store);
  r.format("ds_operand", n.ds_operand, declared.ds_operand);
  if (n.rounded_operands > 2)
    r.complain(fmt::format("numerics.rounded_operands = {} is not 0, 1 or 2", n.rounded_operands));
  if (n.lse_from_rounded_p > 1)
    r.complain(fmt::format("numerics.lse_from_rounded_p = {} is neither 0 nor 1", n.lse_from_rounded_p));
  if (n.reserved[0] || n.reserved[1]) r.complain("numerics.reserved is not 0");
  constexpr std::uint32_t all_stores = 127;
  if (n.truncated & ~all_stores)
    r.complain(fmt::format("numerics.truncated = {} names a store that does not exist", n.truncated));
  declared.rounded_operands = n.rounded_operands;
  declared.lse_from_rounded_p = n.lse_from_rounded_p;
  declared.truncated = n.truncated;
  declared.chain_score = n.chain_score;
  declared.chain_out = n.chain_out;
  declared.chain_row_sum = n.chain_row_sum;
  declared.chain_dq = n.chain_dq;
  declared.chain_dkv = n.chain_dkv;
  r.error_term("numerics.exp_rel_error", n.exp_rel_error, declared.exp_rel_error);
  r.error_term("numerics.log_abs_error", n.log_abs_error, declared.log_abs_error);

  const msabench_profile& p = from.profile;
  r.choice("in_id_order", p.in_id_order, delivers.in_id_order, id_order::any);
  r.choice("in_id_layout", p.in_id_layout, delivers.in_id_layout, id_layout::htk);
  r.choice("in_id_form", p.in_id_form, delivers.in_id_form, id_form::lenient);
  r.choice("out_id_order", p.out_id_order, delivers.out_id_order, id_order::none);
  r.choice("out_id_layout", p.out_id_layout, delivers.out_id_layout, id_layout::htk);
  r.choice("score_unit", p.score_unit, delivers.unit, score_unit::raw);
  r.choice("score_own", p.score_own, delivers.score_own, score_fill::unwritten);
  r.choice("score_tail", p.score_tail, delivers.score_tail, score_fill::unwritten);
  r.choice("nan_score", p.nan_score, delivers.nan_score, nan_policy::propagate);
  r.choice("lse", p.lse, delivers.lse, lse_form::none);
  r.choice("empty_row", p.empty_row, delivers.empty_row, empty_form::undefined);
  r.error_term("profile.rank_step", p.rank_step, delivers.rank_step);
  r.promise("ties_low_id", p.ties_low_id, delivers.ties_low_id);
  r.promise("repeatable", p.repeatable, delivers.repeatable);
  r.promise("batch_invariant", p.batch_invariant, delivers.batch_invariant);
  r.promise("split_invariant", p.split_invariant, delivers.split_invariant);
  r.promise("graph_safe", p.graph_safe, delivers.graph_safe);
  r.promise("hardened", p.hardened, delivers.hardened);
  r.promise("round_after_norm", p.round_after_norm, delivers.round_after_norm);
  r.promise("rotate_in_storage", p.rotate_in_storage, delivers.rotate_in_storage);
  return r.wrong;
}

}  // namespace msabench

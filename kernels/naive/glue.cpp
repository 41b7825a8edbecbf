// SPDX-License-Identifier: Apache-2.0
#include "kernels/naive/glue.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/check.h"
#include "kernels/common/declare.h"
#include "kernels/common/implementation.h"
#include "kernels/common/storage.h"
#include "kernels/naive/attend.h"
#include "kernels/naive/attend_backward.h"
#include "kernels/naive/combine.h"
#include "kernels/naive/index.h"
#include "kernels/naive/kl.h"
#include "kernels/naive/msa.h"
#include "kernels/naive/norm_rope.h"
#include "kernels/naive/rope3d.h"
#include "kernels/naive/score.h"
#include "kernels/naive/select.h"
#include "kernels/naive/vit3d.h"

namespace msabench::naive {
namespace {

constexpr std::int64_t line_bytes = 64;  // no two threads write to one line

// Set once by plugin(), before any other call.
const stages* plugin_stages = nullptr;

/// A stored value times its scale is rounded to fp32, whatever it was stored as: once for each operand that has one.
void declare_scaled_operands(const msabench_problem& problem, msabench_numerics& declared) {
  const bool attends = is_attention(problem.op), indexes = !attends || problem.op == MSABENCH_OP_MSA;
  const bool kv = attends && problem.kv_scale != 0, index = indexes && problem.idx_scale != 0;
  if (kv || index) declared.operand = fp32_type;
  declared.rounded_operands = index ? 2 : kv ? 1 : 0;
  if (kv) declared.v_operand = fp32_type;
}

msabench_numerics numerics(const msabench_problem& problem) {
  msabench_numerics declared = fp32_numerics(problem);
  const bool reads_all = reads_all_keys(problem), is_kl = problem.op == MSABENCH_OP_KL;
  const bool differentiates = trains(problem.op), attends = is_attention(problem.op) || differentiates;
  if (!attends && !is_index_branch(problem.op)) return declared;
  if (!differentiates) declare_scaled_operands(problem, declared);
  // Keys of a block one after the other, then the blocks; no chain is longer than the row has keys.
  const std::int64_t blocks = reads_all ? block_capacity(problem) : problem.topk, block = block_size(problem);
  const std::int64_t most_keys = std::min<std::int64_t>(blocks * block, problem.max_kv_len);
  const std::int64_t in_turn = std::min<std::int64_t>(block + blocks, most_keys);
  declared.chain_row_sum = static_cast<std::uint32_t>(std::max<std::int64_t>(in_turn, 1));
  if (attends && !is_kl) declared.chain_out = declared.chain_row_sum;
  if (differentiates) declared.chain_dq = declared.chain_row_sum;
  // A dot product: an eighth of the products in each lane, three additions of the lanes, a product and the scale.
  const std::int32_t products = attends ? problem.d : problem.di;
  const bool has_both = is_kl || problem.op == MSABENCH_OP_MSA;
  if (has_both && problem.d != problem.di) return declared;  // each branch its longest, which is the default
  declared.chain_score = static_cast<std::uint32_t>(std::min(products + 2, (products + 7) / 8 + 5));
  return declared;
}

double operator_scratch_bytes(const msabench_problem& p) {
  switch (p.op) {
    case MSABENCH_OP_SELECT:
      return static_cast<double>(select_scratch_bytes(max_blocks(p)));
    case MSABENCH_OP_SCORE:
      return score_scratch_bytes({p.hi, p.di, p.block});
    case MSABENCH_OP_INDEX:
      return index_scratch_bytes({p.hi, p.di, p.block}, max_blocks(p));
    case MSABENCH_OP_QK_NORM_ROPE:
      return norm_rope_scratch_bytes(std::max(p.d, p.di));
    case MSABENCH_OP_ROPE3D:
      return rope3d_scratch_bytes(p.d);
    case MSABENCH_OP_VIT3D:
      return std::max(rope3d_scratch_bytes(p.d), attend_scratch_bytes({1, p.d, block_size(p), block_capacity(p)}));
    case MSABENCH_OP_COMBINE:
      return combine_scratch_bytes(p.splits, p.d);
    case MSABENCH_OP_ATTEND_BACKWARD:
    case MSABENCH_OP_DENSE_BACKWARD:
      return backward_scratch_bytes({p.hq / p.hkv, p.d, block_size(p), block_capacity(p)});
    case MSABENCH_OP_KL:
      return kl_scratch_bytes({p.hq / p.hkv, p.d, p.di, block_size(p), max_blocks(p)});
    case MSABENCH_OP_MSA:
      return std::max(index_scratch_bytes({p.hi, p.di, p.block}, max_blocks(p)),
                      attend_scratch_bytes({p.hq / p.hkv, p.d, p.block, block_capacity(p)}));
    default:
      return attend_scratch_bytes({p.hq / p.hkv, p.d, block_size(p), block_capacity(p)});
  }
}

/// Scratch of one thread, in whole cache lines.
double slice_bytes(const msabench_problem& p) {
  return (std::floor(operator_scratch_bytes(p) / line_bytes) + 1) * line_bytes;
}

/// The slices of all threads, and behind them what a caller need not want, of msa the ids of all rows and of vit3d what the
/// rotation writes, or what kl keeps of the rows.
double scratch_bytes(const msabench_problem& p, int threads) {
  double kept = 0;
  if (p.op == MSABENCH_OP_MSA) kept = static_cast<double>(p.total_q) * p.hkv * p.topk * sizeof(std::int32_t);
  if (p.op == MSABENCH_OP_KL) kept = kl_kept_bytes(p.total_q, p.hkv, p.hq / p.hkv);
  if (p.op == MSABENCH_OP_VIT3D) kept = vit3d_shared_bytes(p);
  return slice_bytes(p) * threads + kept;
}

void run_select(const select_call& call, const run_context& context) {
  select(*plugin_stages, call, context.threads, context.scratch,
         static_cast<std::int64_t>(slice_bytes(context.problem)));
}

void run_attend(const attend_call& call, const run_context& context) {
  attend(*plugin_stages, call, context.threads, context.scratch,
         static_cast<std::int64_t>(slice_bytes(context.problem)));
}

void run_norm_rope(const norm_rope_call& call, const run_context& context) {
  norm_rope(*plugin_stages, call, context.threads, context.scratch,
            static_cast<std::int64_t>(slice_bytes(context.problem)));
}

void run_rope3d(const rope3d_call& call, const run_context& context) {
  rope3d(*plugin_stages, call, context.threads, context.scratch,
         static_cast<std::int64_t>(slice_bytes(context.problem)));
}

void run_vit3d(const vit3d_call& call, const run_context& context) {
  vit3d(*plugin_stages, call, context.problem, context.threads, context.scratch,
        static_cast<std::int64_t>(slice_bytes(context.problem)));
}

void run_combine(const combine_call& call, const run_context& context) {
  combine(*plugin_stages, call, context.threads, context.scratch,
          static_cast<std::int64_t>(slice_bytes(context.problem)));
}

void run_score(const index_call& call, const run_context& context) {
  score(*plugin_stages, call, context.threads, context.scratch,
        static_cast<std::int64_t>(slice_bytes(context.problem)));
}

void run_index(const index_call& call, const run_context& context) {
  index(*plugin_stages, call, context.threads, context.scratch,
        static_cast<std::int64_t>(slice_bytes(context.problem)));
}

void run_msa(const msa_call& call, const run_context& context) {
  const auto slice = static_cast<std::int64_t>(slice_bytes(context.problem));
  msa_call kept = call;
  if (kept.index.ids == nullptr) {
    kept.index.ids = reinterpret_cast<std::int32_t*>(static_cast<char*>(context.scratch) + slice * context.threads);
    kept.index.id_head_stride = kept.index.rule.topk;
    kept.index.id_row_stride = std::int64_t{kept.index.heads} * kept.index.rule.topk;
  }
  msa(*plugin_stages, kept, context.threads, context.scratch, slice);
}

void run_backward(const backward_call& call, const run_context& context) {
  attend_backward(*plugin_stages, call, context.threads, context.scratch,
                  static_cast<std::int64_t>(slice_bytes(context.problem)));
}

void run_kl(const kl_call& call, const run_context& context) {
  kl(*plugin_stages, call, context.threads, context.scratch, static_cast<std::int64_t>(slice_bytes(context.problem)));
}

}  // namespace

const msabench_plugin* plugin(const msabench_host* host, const char* name, const char* description,
                              const stages& stage) {
  // Of the shared object, as the table of the interface is.
  static implementation naive_kernels;
  naive_kernels = {.name = name,
                   .description = description,
                   .stores = is_float_storage,
                   .storage_types = float_storage_types,
                   .profile = canonical_profile,
                   .numerics = numerics,
                   .scratch_bytes = scratch_bytes,
                   .scaled_e4m3 = true,
                   .select = run_select,
                   .attend = run_attend,
                   .dense = run_attend,
                   .vit_attend = run_attend,
                   .rope3d = run_rope3d,
                   .vit3d = run_vit3d,
                   .msa = run_msa,
                   .score = run_score,
                   .index = run_index,
                   .combine = run_combine,
                   .norm_rope = run_norm_rope,
                   .attend_backward = run_backward,
                   .dense_backward = run_backward,
                   .kl = run_kl};
  plugin_stages = &stage;
  return kernels::plugin(host, naive_kernels);
}

}  // namespace msabench::naive

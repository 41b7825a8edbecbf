// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention_plan.h"

#include <algorithm>

#include "kernels/common/check.h"
#include "kernels/common/declare.h"
#include "kernels/cuda/attention_keys.cuh"
#include "kernels/cuda/attention_shapes.cuh"
#include "kernels/cuda/gathered_attention.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.h"
#include "kernels/cuda/refusal.h"

namespace msabench::cuda {
namespace {

bool has_segments(const msabench_problem& p) { return p.op == MSABENCH_OP_VIT_ATTEND || p.op == MSABENCH_OP_VIT3D; }

/// Length of a chain that no row of so many keys can exceed.
std::uint32_t chain(std::int64_t additions, std::int64_t keys) {
  return static_cast<std::uint32_t>(std::min(additions, keys));
}

}  // namespace

std::int64_t most_keys(const msabench_problem& p) {
  if (has_segments(p)) return std::max<std::int64_t>({p.max_q_len, p.max_kv_len, 1});
  return reads_all_keys(p) ? std::max<std::int64_t>(p.max_kv_len, 1)
                           : std::max<std::int64_t>(block_capacity(p), 1) * p.block;
}

attention_plan plan_attention(const msabench_problem& p) {
  attention_plan plan{};
  const std::int32_t group = p.hq / p.hkv;
  const bool reads_all = reads_all_keys(p);
  // One query token of a sequence has rows for one warp, and there is nobody to share the keys of a block with.
  plan.wide = reads_all && (has_segments(p) || p.max_q_len > 1);
  plan.rows = plan.wide ? wide_rows : narrow_rows;
  plan.columns = shape_columns(plan.wide, p.d);
  plan.tokens = plan.wide ? plan.rows / group : 1;
  plan.items = token_tile_bound(p.total_q, p.batch, plan.tokens) * p.hkv;
  const std::int64_t keys = most_keys(p);
  const std::int64_t least_span = reads_all ? 4 * part_keys : part_keys, finest = ceil_div(keys, least_span);
  // Where items are too few for a large device: spans that fill it once, or twice with the smaller thread blocks. Spans of
  // selected blocks are as short as parts are, so that a row's bits don't depend on them.
  const std::int64_t wanted = plan.wide ? 512 : 256, most_partials = 8192;
  plan.spans = 1;
  if (reads_all && !has_segments(p) && plan.items > 0 && plan.items < wanted / 2)
    plan.spans = std::min(finest, wanted / plan.items);
  if (!reads_all && plan.items * finest <= most_partials) plan.spans = finest;
  plan.span_keys = ceil_div(ceil_div(keys, plan.spans), least_span) * least_span;
  plan.spans = ceil_div(keys, plan.span_keys);
  return plan;
}

const char* attention_refusal(const msabench_problem& p) {
  if (!is_attention(p.op)) return nullptr;
  const bool selects = !reads_all_keys(p);
  return first_refusal({
      {p.d % 8 != 0 || p.d > most_columns, "d", p.d, "no multiple of 8 up to 128; use such a head dim"},
      {p.hq / p.hkv > narrow_rows, "hq", p.hq, "more than 16 heads for a KV head; use smaller groups"},
      {selects && p.block % 8 != 0, "block", p.block, "no multiple of 8; use such a block"},
      {selects && p.topk > most_topk, "topk", p.topk, "above 1024; select fewer blocks"},
      {p.kv_scale != 0, "kv_scale", p.kv_scale, "keys and values are not scaled here; pass 0"},
  });
}

msabench_numerics attention_numerics(const msabench_problem& p) {
  msabench_numerics declared = fp32_numerics(p);
  declared.p_operand = p.kv;
  declared.exp_rel_error = 0x1p-21f;  // ex2.approx: 2^-22, and its argument is rounded
  const attention_plan plan = plan_attention(p);
  const std::int64_t keys = most_keys(p);
  if (plan.wide) {
    // A lane adds a fourth of the keys of a tile and rescales; four lanes and the spans are added up.
    const std::int64_t tiles = ceil_div(plan.span_keys, wide_tile_keys);
    declared.chain_row_sum = chain(wide_tile_keys / 4 + 2 * tiles + 2 + 2 * plan.spans, keys);
    declared.chain_out = chain(plan.span_keys + tiles + 2 * plan.spans, keys);
  } else {
    // A lane adds eight keys of a quarter, then four lanes, four quarters, the parts and the spans are added up.
    const std::int64_t merges = 2 * (ceil_div(plan.span_keys, part_keys) + plan.spans);
    declared.chain_row_sum = chain(8 + 2 + 4 + merges, keys);
    declared.chain_out = chain(part_keys + merges, keys);
  }
  return declared;
}

bool attention_is_batch_invariant(const msabench_problem& p) {
  // `dense` chooses tiles and spans by the number of query tokens.
  return p.op != MSABENCH_OP_DENSE;
}

double attention_scratch_bytes(const msabench_problem& p) {
  if (gathers_tokens(p)) return gathered_attention_bytes(p);
  const attention_plan plan = plan_attention(p);
  if (plan.spans == 1) return 0;
  return static_cast<double>(plan.items) * static_cast<double>(plan.spans) * plan.rows * (plan.columns + 2) *
         sizeof(float);
}

}  // namespace msabench::cuda

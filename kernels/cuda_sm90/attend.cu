// SPDX-License-Identifier: Apache-2.0
// Attention of many tokens over selected blocks: neighbours that mostly read the same blocks together, all others block
// by block. Which of the two a tile of tokens takes is found on the device, from its ids.
#include <algorithm>
#include <cstdio>
#include <numeric>

#include "kernels/common/check.h"
#include "kernels/common/declare.h"
#include "kernels/cuda/refusal.h"
#include "kernels/cuda_sm90/attend_kernels.h"
#include "kernels/cuda_sm90/decode.h"
#include "kernels/cuda_sm90/operators.h"

namespace msabench::cuda_sm90 {

namespace {

/// Blocks of all sequences and KV heads, each of which has a counter.
constexpr std::int64_t most_counters = 1 << 18;
/// Boxes of fewer rows than a swizzle has don't fit beside each other.
constexpr std::int32_t least_box = 8;

bool has_counters(const msabench_problem& p) {
  return static_cast<double>(p.batch) * static_cast<double>(max_blocks(p)) * p.hkv <= most_counters;
}

bool has_boxes(const msabench_problem& p) {
  return p.page_layout == 0 || std::gcd(p.page_size, block_keys) >= least_box;
}

bool attends(const msabench_problem& p) { return p.op == MSABENCH_OP_ATTEND || p.op == MSABENCH_OP_MSA; }

/// As first_refusal, of a number that is no integer.
const char* scale_refusal(const msabench_problem& p) {
  static thread_local char text[128];
  if (p.softmax_scale >= 0) return nullptr;
  std::snprintf(text, sizeof text, "softmax_scale %g: negative, which keys in e4m3 do not take; use bf16",
                p.softmax_scale);
  return text;
}

}  // namespace

const char* scaled_attend_refusal(const msabench_problem& p) {
  if (!attends(p)) return "kv {10,8,1}: e4m3 is there for attend and msa; use bf16";
  if (!same_type(p.q, bf16_type) || !same_type(p.out, p.q))
    return "kv {10,8,1}: e4m3 is there with q and out in bf16; use these, or bf16";
  const char* const text = cuda::first_refusal({
      {p.d != head_columns, "d", p.d, "keys and values in e4m3 have 128 columns; use bf16"},
      {p.hq / p.hkv > token_heads, "hq", p.hq, "more than 16 heads for a KV head; use smaller groups"},
      {p.block != block_keys, "block", p.block, "keys in e4m3 are selected by blocks of 128; use bf16"},
      {p.topk > most_listed, "topk", p.topk, "above 32, with keys in e4m3; select fewer blocks, or use bf16"},
      {!has_boxes(p), "page_size", p.page_size, "no multiple of 8, with keys in e4m3; use such pages, or bf16"},
      {!has_counters(p), "batch", p.batch,
       "batch * blocks of max_kv_len * hkv is above 262144, with keys in e4m3; divide the batch, or use bf16"},
  });
  return text != nullptr ? text : scale_refusal(p);
}

bool takes_attend(const msabench_problem& p) {
  if (!attends(p)) return false;
  // Of e4m3 no portable kernel computes a row.
  if (same_type(p.kv, e4m3_type)) return scaled_attend_refusal(p) == nullptr;
  const bool typed = same_type(p.out, p.q) && p.q.bits == 16 && same_type(p.kv, p.q) && p.kv_scale == 0;
  // Fewer rows don't fill a device, nor do few tokens to a block repay turning selections round.
  constexpr std::int64_t least_rows = 64;
  const std::int64_t blocks = p.batch * max_blocks(p);
  const bool shared = p.total_q * p.hkv >= least_rows && p.total_q * p.topk >= 2 * blocks;
  return typed && shared && blocks > 0 && has_counters(p) && has_boxes(p) && p.d == head_columns &&
         p.block == block_keys && p.topk <= most_listed && p.hq / p.hkv <= token_heads && p.softmax_scale >= 0;
}

msabench_numerics attend_numerics(const msabench_problem& p) {
  if (!takes_attend(p)) return cuda::attention_numerics(p);
  msabench_numerics declared = fp32_numerics(p);
  declared.p_operand = p.q;  // of e4m3 values, times their scales
  if (!stores_no_partials(p)) declared.partial_store = p.q;
  declared.exp_rel_error = 0x1p-21f;  // ex2.approx: 2^-22, and its argument is rounded
  // A lane adds 32 weights of each block, and then rescales; or the blocks are added up later. Then a sum has 128
  // products and a summand for each block, and what waits between ranges of blocks is rounded to 16 bits, which is like
  // 128 roundings each time: still less than a summand for each key of so many blocks that there are ranges.
  const std::int64_t blocks = std::max<std::int64_t>(block_capacity(p), 1), keys = blocks * p.block;
  declared.chain_row_sum = static_cast<std::uint32_t>(std::min(32 * blocks + 2 * blocks + 2, keys));
  declared.chain_out = static_cast<std::uint32_t>(keys);
  return declared;
}

bool attend_is_batch_invariant(const msabench_problem& p) {
  if (takes_attend(p)) return false;  // tokens beside others are added up in another way
  // A row that is alone, in a call with a lower bound, may have a kernel here.
  msabench_problem alone = p;
  alone.batch = std::min<std::int64_t>(p.batch, 1);
  alone.total_q = alone.max_q_len = std::min<std::int64_t>(p.total_q, 1);
  alone.max_kv_len = std::min<std::int64_t>(p.max_kv_len, p.block);
  return !takes_attend(alone) && cuda::attention_is_batch_invariant(p);
}

double attend_scratch_bytes(const msabench_problem& p) {
  if (!takes_attend(p)) return cuda::attention_scratch_bytes(p);
  double bytes = 0;
  lay_out_attend_chunk(p, nullptr, bytes);
  return bytes;
}

void attend(const attend_call& call, const run_context& context) {
  const msabench_problem& p = context.problem;
  if (takes_decode(p)) return decode_attend(call, context);
  if (!takes_attend(p)) {
    cuda::attend(call, context);
    return;
  }
  const std::int64_t rows = call.rows.batch == 0 ? 0 : std::min(call.rows.row_bound, p.total_q);
  attend_maps maps;
  if (rows == 0 || !make_attend_maps(maps, call)) return;
  const auto stream = static_cast<cudaStream_t>(context.stream);
  double bytes = 0;
  attend_chunk chunk = lay_out_attend_chunk(p, context.scratch, bytes);
  const std::int64_t tiles = cuda::token_tile_bound(rows, call.rows.batch, tile_tokens);
  for (; chunk.first_tile < tiles; chunk.first_tile += chunk.tiles) {
    list_attend_work(call, chunk, stream);
    attend_shared_tiles(call, maps, chunk, stream);
    attend_scattered_tokens(call, maps, chunk, stream);
  }
}

}  // namespace msabench::cuda_sm90

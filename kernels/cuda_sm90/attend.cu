// SPDX-License-Identifier: Apache-2.0
// Attention of many tokens over selected blocks: neighbours that mostly read the same blocks together, all others block
// by block. Which of the two a tile of tokens takes is found on the device, from its ids.
#include <algorithm>
#include <numeric>

#include "kernels/common/check.h"
#include "kernels/common/declare.h"
#include "kernels/cuda_sm90/attend_kernels.h"
#include "kernels/cuda_sm90/decode.h"
#include "kernels/cuda_sm90/operators.h"

namespace msabench::cuda_sm90 {

bool takes_attend(const msabench_problem& p) {
  if (p.op != MSABENCH_OP_ATTEND && p.op != MSABENCH_OP_MSA) return false;
  const bool is_scaled = same_type(p.kv, e4m3_type) && same_type(p.q, bf16_type);
  const bool typed =
      same_type(p.out, p.q) && p.q.bits == 16 && (is_scaled || (same_type(p.kv, p.q) && p.kv_scale == 0));
  // Fewer rows don't fill a device, nor do few tokens to a block repay turning selections round. Of e4m3 no portable
  // kernel computes a row.
  constexpr std::int64_t least_rows = 64, most_blocks = 1 << 18;
  const std::int64_t blocks = p.batch * max_blocks(p);
  const bool shared = is_scaled || (p.total_q * p.hkv >= least_rows && p.total_q * p.topk >= 2 * blocks);
  const bool listed = blocks > 0 && blocks * p.hkv <= most_blocks;
  // Boxes of fewer rows than a swizzle has don't fit beside each other.
  constexpr std::int32_t least_box = 8;
  const bool paged_well = p.page_layout == 0 || std::gcd(p.page_size, block_keys) >= least_box;
  return typed && shared && listed && paged_well && p.d == head_columns && p.block == block_keys &&
         p.topk <= most_listed && p.hq / p.hkv <= token_heads && p.softmax_scale >= 0;
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
  const std::int64_t keys = block_capacity(p) * p.block, blocks = block_capacity(p);
  declared.chain_row_sum = static_cast<std::uint32_t>(std::min(32 * blocks + 2 * blocks + 2, keys));
  declared.chain_out = static_cast<std::uint32_t>(std::min(keys + 2 * blocks, keys));
  return declared;
}

bool attend_is_batch_invariant(const msabench_problem& p) {
  // Few rows take other kernels, and tokens beside others are added up in another way.
  return takes_attend(p) ? false : cuda::attention_is_batch_invariant(p);
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

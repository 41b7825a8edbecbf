// SPDX-License-Identifier: Apache-2.0
// The loss of the index branch and its gradients in two passes, so that each result has one writer and every sum one order:
// losses and dq_idx by tokens over the keys that they read (kl_rows.cu), dk_idx by blocks of keys over the tokens that read
// them (kl_keys.cu). Between them lie the normalisers; weights are made again from the scores.
#include "kernels/cuda/kl.cuh"

#include <algorithm>
#include <cub/block/block_reduce.cuh>

#include "kernels/common/check.h"
#include "kernels/common/declare.h"
#include "kernels/cuda/refusal.h"

namespace msabench::cuda {
namespace {

constexpr int loss_threads = 1024;

/// One block, so that the sum has one order.
__global__ void __launch_bounds__(loss_threads) add_losses(kl_run r) {
  using reduction = cub::BlockReduce<double, loss_threads>;
  __shared__ typename reduction::TempStorage shared;
  double sum = 0;
  const std::int64_t all = r.call.rows.tokens() * r.call.kv_heads;
  for (std::int64_t i = threadIdx.x; i < all; i += loss_threads) sum += r.losses[i];
  const double loss = reduction(shared).Sum(sum);
  if (threadIdx.x == 0) *r.call.loss = r.call.coeff == 0 ? 0 : r.factor() * loss;
}

/// Without ids whatever blocks there are say nothing.
std::int32_t block_of(const msabench_problem& p) { return p.kl_warm_up != 0 ? kl_tile_keys : p.block; }

/// Addresses and sizes that a problem fixes.
kl_run cut(workspace_cutter& memory, const msabench_problem& p) {
  kl_run r{};
  r.block = block_of(p);
  const auto tokens = static_cast<double>(p.total_q);
  r.lse = memory.take<float>(tokens * p.hq);
  r.lse_idx = memory.take<float>(tokens * p.hkv);
  r.losses = memory.take<double>(tokens * p.hkv);
  r.readers = block_readers::cut(memory, p, r.block);
  r.sums = memory.take<float>(static_cast<double>(r.readers.most_pieces()) *
                              static_cast<double>(ceil_div(r.block, kl_tile_keys) * kl_tile_keys * width));
  return r;
}

template <class T>
void differentiate(const kl_run& r, cudaStream_t stream) {
  compare_rows<T>(r, stream);
  r.readers.find(stream);
  add_index_key_gradients<T>(r, stream);
}

}  // namespace

void kl(const kl_call& call, const run_context& context) {
  workspace_cutter memory(context.scratch);
  kl_run r = cut(memory, context.problem);
  r.call = call;
  r.readers.bind(call.rows, call.keys.cu_seqlens_kv, r.block,
                 {call.ids, call.id_row_stride, call.id_head_stride, call.topk});
  const auto stream = static_cast<cudaStream_t>(context.stream);
  if (call.rows.batch > 0) {
    if (same_type(call.q.type, bf16_type))
      differentiate<__nv_bfloat16>(r, stream);
    else
      differentiate<__half>(r, stream);
  }
  add_losses<<<1, loss_threads, 0, stream>>>(r);
}

double kl_scratch_bytes(const msabench_problem& problem) {
  workspace_cutter memory(nullptr);
  cut(memory, problem);
  return memory.bytes();
}

msabench_numerics kl_numerics(const msabench_problem& p) {
  msabench_numerics declared = fp32_numerics(p);
  declared.ds_operand = {2, 19, 1};  // two operands of 16 bits, which are finer than tf32
  // A lane adds eight keys of every fourth piece, and rescales; then four lanes and four warps are added up, two operations
  // each.
  const std::int64_t blocks = block_of(p), most = p.kl_warm_up != 0 ? p.max_kv_len : std::int64_t{p.topk} * blocks;
  const std::int64_t keys = std::max<std::int64_t>(1, std::min(most, p.max_kv_len));
  const std::int64_t row_blocks = std::min(ceil_div(most, blocks), ceil_div(p.max_kv_len, blocks));
  const std::int64_t pieces = row_blocks * ceil_div(blocks, piece_keys);
  declared.chain_row_sum = static_cast<std::uint32_t>(std::min(8 + 3 * ceil_div(pieces, 4) + 24, keys));
  return declared;
}

const char* kl_refusal(const msabench_problem& p) {
  return first_refusal({
      {p.d % 8 != 0 || p.d > width, "d", p.d, "no multiple of 8 up to 128; use such a head dim"},
      {p.di % 8 != 0 || p.di > width, "di", p.di, "no multiple of 8 up to 128; use such an index dim"},
      {p.hq / p.hkv > 16, "hq", p.hq, "more than 16 heads for a KV head; use smaller groups"},
      {p.kl_warm_up == 0 && p.topk > most_training_topk, "topk", p.topk, "above 4096; select fewer blocks"},
  });
}

}  // namespace msabench::cuda

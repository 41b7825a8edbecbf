// SPDX-License-Identifier: Apache-2.0
// The loss of the index branch and its gradients. The batch is taken in chunks of tokens, so that what is kept of readings
// (kl.cuh) has a bound. Every result has one writer and every sum one order.
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

/// Readings that are kept, of about 1200 bytes each.
constexpr std::int64_t kept_readings = 1 << 18;

/// Addresses and sizes that a problem fixes.
kl_run cut(workspace_cutter& memory, const msabench_problem& p) {
  const bool warm_up = p.kl_warm_up != 0;
  kl_run r{};
  // Without ids whatever blocks there are say nothing.
  r.block = warm_up ? kl_tile_keys : p.block;
  r.tiles = static_cast<std::int32_t>(ceil_div(r.block, kl_tile_keys));
  r.slots = warm_up ? ceil_div(p.max_kv_len, kl_tile_keys) : p.topk;
  const std::int64_t readings = std::max<std::int64_t>(1, r.slots * p.hkv * r.tiles);  // of a token
  r.chunk = std::clamp<std::int64_t>(kept_readings / readings, 1, std::max<std::int64_t>(1, p.total_q));
  // Every reading is written by itself, so pieces are only of a size that is soon done.
  constexpr std::int64_t least_piece = 512;
  r.readers = block_readers::cut(memory, p, r.block, r.chunk, least_piece);
  const double kept = static_cast<double>(r.chunk) * static_cast<double>(readings);
  if (!warm_up) r.readers.places = memory.take<std::int32_t>(kept / r.tiles);
  r.parts = memory.take<normaliser>(kept * kl_rows);
  r.lse = memory.take<float>(static_cast<double>(r.chunk) * p.hkv * kl_lse_stride);
  r.differences = memory.take<std::uint16_t>(kept * 2 * kl_tile_keys);
  r.dq_parts = memory.take<float>(kept * width);
  r.loss_parts = memory.take<double>(kept);
  r.losses = memory.take<double>(static_cast<double>(p.total_q) * p.hkv);
  r.dk_sums = memory.take<float>(static_cast<double>(p.total_kv) * width);
  return r;
}

template <class T>
void differentiate(kl_run& r, cudaStream_t stream) {
  for (std::int64_t first = 0; first < r.call.rows.row_bound; first += r.chunk) {
    r.readers.first_row = first;
    r.readers.find(stream);
    score_readings<T>(r, stream);
    normalise_rows(r, stream);
    compare_readings<T>(r, stream);
    store_rows(r, stream);
    add_index_keys<T>(r, stream);
  }
  store_keys(r, stream);
}

}  // namespace

void kl(const kl_call& call, const run_context& context) {
  const msabench_problem& p = context.problem;
  workspace_cutter memory(context.scratch);
  kl_run r = cut(memory, p);
  r.call = call;
  // Token tensors may have more rows than there can be tokens, for which nothing is kept.
  r.call.rows.row_bound = std::min(call.rows.row_bound, p.total_q);
  r.readers.bind(r.call.rows, call.keys.cu_seqlens_kv, r.block,
                 {call.ids, call.id_row_stride, call.id_head_stride, call.topk});
  const auto stream = static_cast<cudaStream_t>(context.stream);
  if (call.rows.batch > 0) {
    cudaMemsetAsync(r.dk_sums, 0, static_cast<std::size_t>(p.total_kv) * width * sizeof(float), stream);
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
  // A lane adds 32 keys of a tile, then four lanes, then tiles one after the other, two operations each.
  const bool warm_up = p.kl_warm_up != 0;
  const std::int64_t block = warm_up ? kl_tile_keys : p.block;
  const std::int64_t blocks = warm_up ? max_blocks(p) : std::min<std::int64_t>(p.topk, max_blocks(p));
  const std::int64_t keys = std::max<std::int64_t>(1, warm_up ? p.max_kv_len : std::min(blocks * block, p.max_kv_len));
  const std::int64_t tiles = (warm_up ? ceil_div(p.max_kv_len, block) : blocks) * ceil_div(block, kl_tile_keys);
  declared.chain_row_sum = static_cast<std::uint32_t>(std::clamp<std::int64_t>(32 + 2 + 2 * tiles, 1, keys));
  return declared;
}

const char* kl_refusal(const msabench_problem& p) {
  return first_refusal({
      {p.d % 8 != 0 || p.d > width, "d", p.d, "no multiple of 8 up to 128; use such a head dim"},
      {p.di % 8 != 0 || p.di > width, "di", p.di, "no multiple of 8 up to 128; use such an index dim"},
      {p.hq / p.hkv > kl_heads, "hq", p.hq, "more than 16 heads for a KV head; use smaller groups"},
      {p.kl_warm_up == 0 && p.topk > most_training_topk, "topk", p.topk, "above 4096; select fewer blocks"},
  });
}

}  // namespace msabench::cuda

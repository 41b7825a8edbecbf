// SPDX-License-Identifier: Apache-2.0
// Gradients of attention in two passes, so that each result has one writer and every sum one order: dq by tokens over the
// keys that they read (query_gradients.cu), dk and dv by blocks of keys over the tokens that read them (key_gradients.cu).
// Weights are made again in both from the scores and the log-sum-exp handed in, p = 2^(score - lse).
#include <algorithm>
#include <limits>

#include "kernels/common/check.h"
#include "kernels/common/declare.h"
#include "kernels/cuda/backward.cuh"
#include "kernels/cuda/refusal.h"

namespace msabench::cuda {
namespace {

constexpr int sum_warps = 8;

/// lse in base 2 and D = <dO, o> of every (token, query head): a warp for each.
template <class T>
__global__ void __launch_bounds__(sum_warps* warp) add_products_of_rows(backward_run r) {
  using pair = typename storage<T>::pair;
  const backward_call& c = r.call;
  const std::int32_t heads = c.kv_heads * c.group;
  const std::int64_t all = c.rows.tokens() * heads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * sum_warps + threadIdx.x / warp; i < all;
       i += std::int64_t{gridDim.x} * sum_warps) {
    const std::int64_t row = i / heads;
    const auto head = static_cast<std::int32_t>(i % heads);
    const auto* const out = reinterpret_cast<const pair*>(c.out.at(row, head));
    const auto* const d_out = reinterpret_cast<const pair*>(c.d_out.at(row, head));
    float sum = 0;
    for (int column = threadIdx.x % warp; column < c.d / 2; column += warp) {
      const float2 a = storage<T>::widen(out[column]), b = storage<T>::widen(d_out[column]);
      sum += a.x * b.x + a.y * b.y;
    }
    for (int other = warp / 2; other > 0; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
    if (threadIdx.x % warp == 0)
      r.sums_of(row, head) = {c.lse[row * c.lse_row_stride + head * c.lse_head_stride] * log2e, sum};
  }
}

/// Addresses and sizes that a problem fixes.
backward_run cut(workspace_cutter& memory, const msabench_problem& p) {
  backward_run r{};
  r.sums = memory.take<row_sums>(static_cast<double>(p.total_q) * p.hq);
  constexpr std::int64_t tile_keys = 128, least_piece = 2048;
  r.readers = block_readers::cut(memory, p, block_size(p), p.total_q, least_piece);
  r.pieces.size = 2 * tile_keys * width;
  r.pieces.data = memory.take<float>(static_cast<double>(r.readers.most_slots()) *
                                     static_cast<double>(ceil_div(block_size(p), tile_keys) * r.pieces.size));
  return r;
}

template <class T>
void differentiate(const backward_run& r, cudaStream_t stream) {
  sum_rows<T>(r, stream);
  add_query_gradients<T>(r, stream);
  r.readers.find(stream);
  add_key_gradients<T>(r, stream);
}

}  // namespace

template <class T>
void sum_rows(const backward_run& r, cudaStream_t stream) {
  const std::int64_t rows = r.call.rows.row_bound * r.call.kv_heads * r.call.group;
  add_products_of_rows<T><<<grid_blocks(rows, sum_warps), sum_warps * warp, 0, stream>>>(r);
}

template void sum_rows<__nv_bfloat16>(const backward_run&, cudaStream_t);
template void sum_rows<__half>(const backward_run&, cudaStream_t);

void attend_backward(const backward_call& call, const run_context& context) {
  if (call.rows.batch == 0) return;
  workspace_cutter memory(context.scratch);
  backward_run r = cut(memory, context.problem);
  r.call = call;
  // Token tensors may have more rows than there can be tokens, for which nothing is kept.
  r.call.rows.row_bound = std::min(call.rows.row_bound, context.problem.total_q);
  r.readers.bind(r.call.rows, call.keys.cu_seqlens_kv, call.block,
                 {call.ids, call.id_row_stride, call.id_head_stride, call.topk});
  const auto stream = static_cast<cudaStream_t>(context.stream);
  if (same_type(call.q.type, bf16_type))
    differentiate<__nv_bfloat16>(r, stream);
  else
    differentiate<__half>(r, stream);
}

double backward_scratch_bytes(const msabench_problem& problem) {
  workspace_cutter memory(nullptr);
  cut(memory, problem);
  return memory.bytes();
}

msabench_numerics backward_numerics(const msabench_problem& p) {
  msabench_numerics declared = fp32_numerics(p);
  // P and dS are operands of the matrix unit.
  declared.p_operand = declared.ds_operand = p.q;
  return declared;
}

const char* backward_refusal(const msabench_problem& p) {
  constexpr std::int64_t most_rows = std::numeric_limits<std::int32_t>::max();
  return first_refusal({
      {p.d % 8 != 0 || p.d > width, "d", p.d, "no multiple of 8 up to 128; use such a head dim"},
      {!reads_all_keys(p) && p.topk > most_training_topk, "topk", p.topk, "above 4096; select fewer blocks"},
      {p.total_q > most_rows / p.hq, "total_q", static_cast<std::int32_t>(std::min(p.total_q, most_rows)),
       "rows of all query heads pass 32 bits; use fewer tokens"},
  });
}

}  // namespace msabench::cuda

// SPDX-License-Identifier: Apache-2.0
// The loss of the index branch and its gradients: scores twice by blocks of keys, first for the normalisers of rows, then for
// losses and gradients of readings, and sums of those (kl_run.cuh). The batch is taken in chunks of tokens, so that what is
// kept of readings has a bound. Every result has one writer and every sum one order.
#include <algorithm>

#include "kernels/common/check.h"
#include "kernels/common/declare.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda_sm90/kl_run.cuh"
#include "kernels/cuda_sm90/operators.h"
#include "kernels/cuda_sm90/tensor_map.h"
#include "kernels/cuda_sm90/training_chunks.h"

namespace msabench::cuda_sm90 {
namespace {

using cuda::ceil_div;

std::int64_t slots_of(const msabench_problem& p) {
  return p.kl_warm_up != 0 ? ceil_div(p.max_kv_len, block_keys) : p.topk;
}

training_chunks chunks_of(const msabench_problem& p) {
  constexpr std::int64_t kept_readings = std::int64_t{1} << 20;  // of about 650 bytes
  return {p.total_q, kept_readings, slots_of(p) * p.hkv};
}

/// Addresses and sizes that a problem fixes.
kl_run cut(cuda::workspace_cutter& memory, const msabench_problem& p) {
  kl_run r{};
  cuda::kl_run& parts = r.parts;
  parts.block = block_keys;
  parts.tiles = 1;
  parts.slots = slots_of(p);
  parts.chunk = chunks_of(p).tokens();
  parts.readers = cuda::block_readers::cut(memory, p, block_keys, parts.chunk, least_piece);
  const double rows = static_cast<double>(parts.chunk) * p.hkv, readings = rows * static_cast<double>(parts.slots);
  if (p.kl_warm_up == 0) parts.readers.places = memory.take<std::int32_t>(readings);
  parts.parts = memory.take<cuda::normaliser>(readings * cuda::kl_rows);
  parts.lse = memory.take<float>(rows * cuda::kl_lse_stride);
  parts.dq_parts = memory.take<float>(readings * head_columns);
  parts.dk_sums = memory.take<float>(static_cast<double>(p.total_kv) * head_columns);
  const auto pieces = static_cast<double>(parts.readers.most_pieces());
  r.dk_pieces = memory.take<float>(pieces * block_keys * head_columns);
  r.losses = memory.take<double>(static_cast<double>(chunks_of(p).count()) * static_cast<double>(r.loss_items()));
  return r;
}

bool takes_kl(const msabench_problem& p) {
  constexpr double most_bytes = 2e9;  // sums of blocks take 64 KiB for each head
  const bool fits = p.op == MSABENCH_OP_KL && (p.kl_warm_up != 0 || p.block == block_keys) && p.d == head_columns &&
                    p.di == head_columns && p.hkv > 0 && p.hq == p.hkv * kl_heads && p.softmax_scale >= 0 &&
                    p.index_scale >= 0;
  if (!fits || !chunks_of(p).worthwhile()) return false;
  cuda::workspace_cutter memory(nullptr);
  cut(memory, p);
  return memory.bytes() <= most_bytes;
}

bool map_rows(CUtensorMap& map, const kl_call& c, const kl_call::token_tensor& rows, std::int64_t heads,
              std::int32_t box_heads) {
  const std::int64_t bytes = bytes_of(rows.type);
  return make_tensor_map(map, rows.type, rows.data,
                         {{head_columns, bytes, head_columns / 2},
                          {heads, rows.head_stride * bytes, box_heads},
                          {c.rows.row_bound, rows.row_stride * bytes, 1}});
}

template <class T>
void differentiate(kl_run& r, cudaStream_t stream) {
  r.chunk = 0;
  for (std::int64_t first = 0; first < r.parts.call.rows.row_bound; first += r.parts.chunk, ++r.chunk) {
    r.parts.readers.first_row = first;
    r.parts.readers.find(stream);
    score_readings<T>(r, stream);
    normalise_rows(r, stream);
    compare_readings<T>(r, stream);
    add_rows(r, stream);
    add_keys(r, stream);
  }
  cuda::store_keys(r.parts, stream);
}

}  // namespace

void kl(const kl_call& call, const run_context& context) {
  const msabench_problem& p = context.problem;
  if (!takes_kl(p)) return cuda::kl(call, context);
  cuda::workspace_cutter memory(context.scratch);
  kl_run r = cut(memory, p);
  r.parts.call = call;
  // Token tensors may have more rows than there can be tokens, for which nothing is kept.
  r.parts.call.rows.row_bound = std::min(call.rows.row_bound, p.total_q);
  r.parts.readers.bind(r.parts.call.rows, call.keys.cu_seqlens_kv, block_keys,
                       {call.ids, call.id_row_stride, call.id_head_stride, call.topk});
  const std::int32_t heads = call.kv_heads;
  const auto stream = static_cast<cudaStream_t>(context.stream);
  if (call.rows.batch > 0) {
    // Without rows nobody reads them, and there may be no memory.
    const bool has_rows = r.parts.call.rows.row_bound > 0;
    if (has_rows && (!map_rows(r.q, r.parts.call, call.q, heads * kl_heads, kl_heads) ||
                     !map_rows(r.q_idx, r.parts.call, call.q_idx, heads, 1)))
      return;
    cudaMemsetAsync(r.parts.dk_sums, 0, static_cast<std::size_t>(p.total_kv) * head_columns * sizeof(float), stream);
    cudaMemsetAsync(r.losses, 0, static_cast<std::size_t>(chunks_of(p).count() * r.loss_items()) * sizeof(double),
                    stream);
    if (same_type(call.q.type, bf16_type))
      differentiate<__nv_bfloat16>(r, stream);
    else
      differentiate<__half>(r, stream);
  }
  add_losses(r, call.rows.batch > 0 ? chunks_of(p).count() : 0, stream);
}

double kl_scratch_bytes(const msabench_problem& p) {
  if (!takes_kl(p)) return cuda::kl_scratch_bytes(p);
  cuda::workspace_cutter memory(nullptr);
  cut(memory, p);
  return memory.bytes();
}

}  // namespace msabench::cuda_sm90

// SPDX-License-Identifier: Apache-2.0
// Sums of kl over what was found out of readings: by tokens the normalisers and dq_idx, by keys dk_idx, and the loss. Several
// loads of a sum are on their way at a time.
#include <math_constants.h>

#include <cub/block/block_reduce.cuh>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda_sm90/kl_run.cuh"

namespace msabench::cuda_sm90 {
namespace {

using cuda::normaliser;
using cuda::reading;

constexpr int warp = 32, row_warps = 8, batch = 8, key_threads = 256, loss_threads = 1024;

/// visit(row, head) by a warp for each (token, KV head) of the chunk.
template <class Visit>
__device__ void for_each_row(const kl_run& r, const Visit& visit) {
  const cuda::block_readers& readers = r.parts.readers;
  const std::int32_t heads = r.parts.call.kv_heads;
  const std::int64_t all = (readers.end_row() - readers.first_row) * heads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * row_warps + threadIdx.x / warp; i < all;
       i += std::int64_t{gridDim.x} * row_warps)
    visit(readers.first_row + i / heads, static_cast<std::int32_t>(i % heads));
}

/// By a warp: visit(readings) for the readings of a row, in the order of its slots, so many at a time; -1: none.
template <class Visit>
__device__ void for_each_batch(const kl_run& r, std::int64_t row, std::int32_t head, const Visit& visit) {
  const std::int64_t visible = visible_blocks(r.parts.call.rows.place(row), r.parts.block);
  const std::int64_t slots = r.parts.selected() ? r.parts.slots : visible;
  const int lane = threadIdx.x % warp;
  for (std::int64_t first = 0; first < slots; first += warp) {
    const std::int64_t own = first + lane < slots ? r.parts.reading_of(row, head, first + lane, visible) : -1;
    for (int i = 0; i < warp && first + i < slots; i += batch) {
      std::int64_t readings[batch];
#pragma unroll
      for (int j = 0; j < batch; ++j) readings[j] = __shfl_sync(~0u, own, i + j);
      visit(readings);
    }
  }
}

/// A lane for each head of the teacher, and one for the student.
__global__ void __launch_bounds__(row_warps* warp) normalise(const __grid_constant__ kl_run r) {
  const int lane = threadIdx.x % warp, own = min(lane, cuda::kl_rows - 1);
  for_each_row(r, [&](std::int64_t row, std::int32_t head) {
    normaliser all{-CUDART_INF_F, 0};
    for_each_batch(r, row, head, [&](const std::int64_t(&readings)[batch]) {
      normaliser parts[batch];
      float most = all.most;
#pragma unroll
      for (int j = 0; j < batch; ++j) {
        parts[j] = readings[j] < 0 ? normaliser{-CUDART_INF_F, 0} : r.parts.parts[readings[j] * cuda::kl_rows + own];
        most = fmaxf(most, parts[j].most);
      }
      if (most == -CUDART_INF_F) return;
      float sum = all.sum * exp2f(all.most - most);
#pragma unroll
      for (const normaliser& part : parts) sum += part.sum * exp2f(part.most - most);
      all = {most, sum};
    });
    if (lane < cuda::kl_rows)
      r.parts.lse_of(row, head)[lane] = static_cast<float>(all.most + log2(static_cast<double>(all.sum)));
  });
}

__global__ void __launch_bounds__(row_warps* warp) sum_rows(const __grid_constant__ kl_run r) {
  const kl_call& c = r.parts.call;
  const float factor = r.parts.gradient_factor();
  const int lane = threadIdx.x % warp, column = lane * 4;
  for_each_row(r, [&](std::int64_t row, std::int32_t head) {
    float4 sum = make_float4(0, 0, 0, 0);
    for_each_batch(r, row, head, [&](const std::int64_t(&readings)[batch]) {
      float4 parts[batch];
#pragma unroll
      for (int j = 0; j < batch; ++j)
        parts[j] =
            readings[j] < 0
                ? make_float4(0, 0, 0, 0)
                : __ldcs(reinterpret_cast<const float4*>(r.parts.dq_parts + readings[j] * head_columns + column));
#pragma unroll
      for (const float4& x : parts) sum = make_float4(sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w);
    });
    char* const line = c.dq_idx.at(row, head, c.gradient_type);
    cuda::store_pair(line, c.gradient_type, column, sum.x * factor, sum.y * factor);
    cuda::store_pair(line, c.gradient_type, column + 2, sum.z * factor, sum.w * factor);
    for (int i = lane; c.dq.data != nullptr && i < c.group * c.d / 2; i += warp)
      cuda::store_pair(c.dq.at(row, head * c.group + i / (c.d / 2), c.gradient_type), c.gradient_type,
                       i % (c.d / 2) * 2, 0, 0);
  });
}

/// To the sums of the chunks before. A part of a block's keys for each thread block, four columns of a key for each thread.
__global__ void __launch_bounds__(key_threads) sum_pieces(const __grid_constant__ kl_run r) {
  const cuda::block_readers& readers = r.parts.readers;
  constexpr int quads = head_columns / 4, part_keys = key_threads / quads, parts = block_keys / part_keys;
  for (std::int64_t item = blockIdx.x; item < readers.blocks * parts; item += gridDim.x) {
    const std::int64_t number = item / parts;
    const int key = static_cast<int>(item % parts) * part_keys + threadIdx.x / quads, column = threadIdx.x % quads * 4;
    const cuda::block_numbers::keys keys = readers.numbers.at(number);
    if (key >= keys.count) continue;
    auto& to = *reinterpret_cast<float4*>(
        r.parts.dk_sums + (r.parts.call.index_keys.cu_seqlens_kv[keys.sequence] + keys.first + key) * head_columns +
        column);
    float4 sum = to;
    for (std::int32_t head = 0; head < readers.heads; ++head) {
      const std::int64_t first = readers.first_piece(head, number), end = first + readers.pieces_of(head, number);
      for (std::int64_t piece = first; piece < end; ++piece) {
        if (readers.at(piece, 0, block_keys).tokens == 0) continue;
        const float4 x =
            __ldcs(reinterpret_cast<const float4*>(r.dk_pieces + (piece * block_keys + key) * head_columns + column));
        sum = make_float4(sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w);
      }
    }
    to = sum;
  }
}

/// One block, so that the sum has one order.
__global__ void __launch_bounds__(loss_threads) sum_losses(const __grid_constant__ kl_run r, std::int64_t count) {
  using reduction = cub::BlockReduce<double, loss_threads>;
  __shared__ typename reduction::TempStorage shared;
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += loss_threads) sum += r.losses[i];
  const double loss = reduction(shared).Sum(sum);
  const kl_call& c = r.parts.call;
  if (threadIdx.x == 0) *c.loss = c.coeff == 0 ? 0 : r.parts.factor() * loss * CUDART_LN2;
}

unsigned row_blocks(const kl_run& r) {
  return cuda::grid_blocks(r.parts.readers.row_count * r.parts.call.kv_heads, row_warps);
}

}  // namespace

void normalise_rows(const kl_run& r, cudaStream_t stream) {
  normalise<<<row_blocks(r), row_warps * warp, 0, stream>>>(r);
}

void add_rows(const kl_run& r, cudaStream_t stream) { sum_rows<<<row_blocks(r), row_warps * warp, 0, stream>>>(r); }

void add_keys(const kl_run& r, cudaStream_t stream) {
  sum_pieces<<<cuda::grid_blocks(r.parts.readers.blocks * 16, 1, 64), key_threads, 0, stream>>>(r);
}

void add_losses(const kl_run& r, std::int64_t chunks, cudaStream_t stream) {
  sum_losses<<<1, loss_threads, 0, stream>>>(r, chunks * r.loss_items());
}

}  // namespace msabench::cuda_sm90

// SPDX-License-Identifier: Apache-2.0
// Sums of kl over what was found out of readings: by tokens the normalisers, losses and dq_idx, by keys dk_idx.
#include <math_constants.h>

#include "kernels/cuda/kl.cuh"

namespace msabench::cuda {
namespace {

constexpr int row_warps = 8, key_warps = kl_tile_keys / 16, step_tokens = 16;

/// visit(row, head) by a warp for each (token, KV head) of the chunk.
template <class Visit>
__device__ void for_each_row(const kl_run& r, const Visit& visit) {
  const std::int64_t all = (r.readers.end_row() - r.readers.first_row) * r.call.kv_heads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * row_warps + threadIdx.x / warp; i < all;
       i += std::int64_t{gridDim.x} * row_warps)
    visit(r.readers.first_row + i / r.call.kv_heads, static_cast<std::int32_t>(i % r.call.kv_heads));
}

/// visit(reading) for the readings of a row, in the order of its slots.
template <class Visit>
__device__ void for_each_reading(const kl_run& r, std::int64_t row, std::int32_t head, const Visit& visit) {
  const std::int64_t visible = visible_blocks(r.call.rows.place(row), r.block);
  const std::int64_t slots = r.selected() ? r.slots : visible;
  for (std::int64_t slot = 0; slot < slots; ++slot) {
    const std::int64_t first = r.reading_of(row, head, slot, visible);
    if (first < 0) continue;
    for (std::int32_t tile = 0; tile < r.tiles; ++tile) visit(first + tile);
  }
}

/// A lane for each head of the teacher, and one for the student.
__global__ void __launch_bounds__(row_warps* warp) normalise(kl_run r) {
  const int lane = threadIdx.x % warp;
  if (lane >= kl_rows) return;
  for_each_row(r, [&](std::int64_t row, std::int32_t head) {
    normaliser all{-CUDART_INF_F, 0};
    for_each_reading(r, row, head, [&](std::int64_t reading) {
      const normaliser part = r.parts[reading * kl_rows + lane];
      const float most = fmaxf(all.most, part.most);
      if (most == -CUDART_INF_F) return;
      all = {most, all.sum * exp2f(all.most - most) + part.sum * exp2f(part.most - most)};
    });
    const bool there = lane < r.call.group || lane == kl_heads;
    // Rows without a head weigh nothing.
    r.lse_of(row, head)[lane] =
        there ? static_cast<float>(all.most + log2(static_cast<double>(all.sum))) : CUDART_INF_F;
  });
}

__global__ void __launch_bounds__(row_warps* warp) add_rows(kl_run r) {
  const kl_call& c = r.call;
  const float factor = r.gradient_factor();
  const int column = threadIdx.x % warp * 4;
  for_each_row(r, [&](std::int64_t row, std::int32_t head) {
    float4 sum = make_float4(0, 0, 0, 0);
    double loss = 0;
    for_each_reading(r, row, head, [&](std::int64_t reading) {
      const float4 part = *reinterpret_cast<const float4*>(r.dq_parts + reading * width + column);
      sum = make_float4(sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w);
      loss += r.loss_parts[reading];
    });
    if (column < c.di) {
      char* const line = c.dq_idx.at(row, head, c.gradient_type);
      store_pair(line, c.gradient_type, column, sum.x * factor, sum.y * factor);
      store_pair(line, c.gradient_type, column + 2, sum.z * factor, sum.w * factor);
    }
    if (column == 0) r.losses[row * c.kv_heads + head] = loss * CUDART_LN2;
    for (int i = threadIdx.x % warp; c.dq.data != nullptr && i < c.group * c.d / 2; i += warp)
      store_pair(c.dq.at(row, head * c.group + i / (c.d / 2), c.gradient_type), c.gradient_type, i % (c.d / 2) * 2, 0,
                 0);
  });
}

template <class T>
using tile = shared_tile<T, width>;

/// Shared memory of a step: both parts of the differences of 16 readings, and their index queries. Steps are short, so three of
/// them are on their way while one is computed.
constexpr int step_tile_bytes = step_tokens * width * 2, step_bytes = 3 * step_tile_bytes, stages = 4;

/// dk_idx of a tile of keys += differences^T * index queries, over the readings of all heads. A block of threads for each (block
/// number, tile), 16 keys for each warp.
template <class T>
__global__ void __launch_bounds__(key_warps* warp) add_keys(kl_run r) {
  __shared__ __align__(256) char memory[stages * step_bytes];
  const kl_call& c = r.call;
  const lane_place at;
  const int w = threadIdx.x / warp;
  static_assert(key_warps * warp == step_tokens * tile<T>::chunks);
  const int own_token = threadIdx.x / tile<T>::chunks, chunk = threadIdx.x % tile<T>::chunks;
  const bool first_chunk = r.readers.first_row == 0;
  for (std::int64_t item = blockIdx.x; item < r.readers.blocks * r.tiles; item += gridDim.x) {
    const std::int64_t number = item / r.tiles;
    const int tile_of_block = static_cast<int>(item % r.tiles);
    float sum[width / 8][4] = {};
    for (std::int32_t head = 0; head < c.kv_heads; ++head)
      for (std::int64_t piece = 0; piece < r.readers.pieces_of(head, number); ++piece) {
        const reading task = r.readers.at(r.readers.first_piece(head, number) + piece, tile_of_block, kl_tile_keys);
        if (task.keys.count == 0) continue;
        const auto part = [&](int step, int i) {
          return tile<T>(shared_address(memory) + step % stages * step_bytes + i * step_tile_bytes);
        };
        const auto load = [&](int step) {
          const int i = step * step_tokens + own_token;
          const bool there = i < task.tokens;
          const std::uint16_t* const line =
              r.differences + (there ? r.reading_at(task, i, tile_of_block) : 0) * 2 * kl_tile_keys;
          part(step, 0).copy(own_token, chunk, line, kl_tile_keys, there);
          part(step, 1).copy(own_token, chunk, line + kl_tile_keys, kl_tile_keys, there);
          part(step, 2).copy(own_token, chunk, c.q_idx.at(there ? task.token(i) : 0, head), c.di, there);
          commit_copies();
        };
        const int steps = (task.tokens + step_tokens - 1) / step_tokens;
        for (int step = 0; step < stages - 1; ++step) load(step);
        for (int step = 0; step < steps; ++step) {
          wait_copies<stages - 2>();
          __syncthreads();  // all have this step, and are done with the one before
          load(step + stages - 1);
          const lane_address queries = part(step, 2).lane_rows();
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            std::uint32_t a[4];
            tile<T>::left_transposed(a, part(step, i).lane_columns(), 0, w);
#pragma unroll
            for (int n = 0; n < width / 16; ++n) {
              std::uint32_t b[4];
              tile<T>::right(b, queries, 0, n);
              mma<T>(sum[2 * n], a, b[0], b[1]);
              mma<T>(sum[2 * n + 1], a, b[2], b[3]);
            }
          }
        }
        wait_copies<0>();
        __syncthreads();  // the next piece begins in the same memory
      }
    const block_numbers::keys keys = r.readers.numbers.at(number);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = tile_of_block * kl_tile_keys + stored_key(w * 16 + half * 8 + at.g);
      if (key >= keys.count) continue;
      float* const line = r.dk_sums + (c.index_keys.cu_seqlens_kv[keys.sequence] + keys.first + key) * width;
#pragma unroll
      for (int n = 0; n < width / 8; ++n) {
        auto& pair = *reinterpret_cast<float2*>(line + n * 8 + at.t * 2);
        const float2 before = first_chunk ? make_float2(0, 0) : pair;
        pair = make_float2(before.x + sum[n][half * 2], before.y + sum[n][half * 2 + 1]);
      }
    }
  }
}

/// A warp for each key.
__global__ void __launch_bounds__(row_warps* warp) finish_keys(kl_run r) {
  const kl_call& c = r.call;
  const float factor = r.gradient_factor();
  const std::int64_t keys = c.index_keys.cu_seqlens_kv[c.rows.batch];
  const int lane = threadIdx.x % warp;
  for (std::int64_t key = std::int64_t{blockIdx.x} * row_warps + threadIdx.x / warp; key < keys;
       key += std::int64_t{gridDim.x} * row_warps) {
    for (int column = lane * 2; column < c.di; column += warp * 2) {
      const float2 sum = *reinterpret_cast<const float2*>(r.dk_sums + key * width + column);
      store_pair(c.dk_idx.at(key, 0, c.gradient_type), c.gradient_type, column, sum.x * factor, sum.y * factor);
    }
    for (int i = lane; c.dk.data != nullptr && i < c.kv_heads * c.d / 2; i += warp)
      store_pair(c.dk.at(key, i / (c.d / 2), c.gradient_type), c.gradient_type, i % (c.d / 2) * 2, 0, 0);
  }
}

unsigned row_blocks(const kl_run& r) { return grid_blocks(r.readers.row_count * r.call.kv_heads, row_warps); }

}  // namespace

void normalise_rows(const kl_run& r, cudaStream_t stream) {
  normalise<<<row_blocks(r), row_warps * warp, 0, stream>>>(r);
}

void store_rows(const kl_run& r, cudaStream_t stream) { add_rows<<<row_blocks(r), row_warps * warp, 0, stream>>>(r); }

template <class T>
void add_index_keys(const kl_run& r, cudaStream_t stream) {
  add_keys<T><<<grid_blocks(r.readers.blocks * r.tiles, 1, 64), key_warps * warp, 0, stream>>>(r);
}

template void add_index_keys<__nv_bfloat16>(const kl_run&, cudaStream_t);
template void add_index_keys<__half>(const kl_run&, cudaStream_t);

void store_keys(const kl_run& r, cudaStream_t stream) {
  finish_keys<<<grid_blocks(r.readers.blocks * r.block, row_warps), row_warps * warp, 0, stream>>>(r);
}

}  // namespace msabench::cuda

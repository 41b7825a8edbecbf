// SPDX-License-Identifier: Apache-2.0
// Attention with the keys of each row streamed through shared memory: `attend`, `dense` and `vit_attend`.
//
// A thread block computes the rows of a tile of tokens and one KV head, over its span of their keys. Copies run ahead of
// the arithmetic by two tiles; a tile of keys is followed by the tile of its values. Where a tile has more spans than
// one, combine_spans puts their results together.
#pragma once

#include <math_constants.h>

#include <cstdint>

#include "kernels/cuda/attention_keys.cuh"
#include "kernels/cuda/attention_plan.h"
#include "kernels/cuda/attention_rows.cuh"
#include "kernels/cuda/attention_shapes.cuh"
#include "kernels/cuda/launch.cuh"

namespace msabench::cuda {

/// What thread blocks know of each other.
struct attention_grid {
  std::int64_t tiles;   ///< of tokens, at the most
  std::int32_t tokens;  ///< of a tile, at the most
  std::int64_t spans, span_keys;
  std::int32_t rows, columns;  ///< of a partial result
  float* partial_out;          ///< [items][spans][rows][columns], before the division by the sum
  float2* partial_stats;       ///< [items][spans][rows]: greatest score, sum

  /// Blocks that selections share are more often those of neighbours, so tiles of one head follow each other; with all
  /// keys the last tiles have most work, and begin.
  __device__ token_tile tile_of(const attend_call& call, std::int64_t item, std::int64_t& kv_head) const {
    const bool selected = call.ids != nullptr;
    kv_head = selected ? item / tiles : item % call.kv_heads;
    return token_tile_at(call.rows, selected ? item % tiles : tiles - 1 - item / call.kv_heads, tokens);
  }
  __device__ std::int64_t partial(std::int64_t item, std::int64_t span, std::int32_t row) const {
    return (item * spans + span) * rows + row;
  }
};

/// Where a row of a tile goes.
struct row_output {
  std::int64_t row, head;

  __device__ row_output(const attend_call& call, const token_tile& tile, std::int64_t kv_head, std::int32_t r)
      : row(tile.first + r / call.group), head(kv_head * call.group + r % call.group) {}

  __device__ void pair(const attend_call& call, int column, float x, float y) const {
    char* const to = call.out + (row * call.out_row_stride + head * call.out_head_stride + column) * 2;
    *reinterpret_cast<std::uint32_t*>(to) =
        same_type(call.out_type, bf16_type) ? storage<__nv_bfloat16>::pack(x, y) : storage<__half>::pack(x, y);
  }
  __device__ void lse(const attend_call& call, float most, float sum) const {
    if (call.lse == nullptr) return;
    // In double: the declared error is absolute, and fp32 misses it once the sum passes a few hundred.
    call.lse[row * call.lse_row_stride + head * call.lse_head_stride] =
        most == -CUDART_INF_F
            ? most
            : static_cast<float>(static_cast<double>(most) * CUDART_LN2 + log(static_cast<double>(sum)));
  }
};

/// 0 of a row without keys, whose output is 0.
__device__ inline float inverse_sum(float sum) { return sum == 0 ? 0.0f : 1 / sum; }

/// Results of a warp's rows, or partial ones.
template <class S>
__device__ void write_rows(const attend_call& call, const attention_grid& grid, const token_tile& tile,
                           std::int64_t kv_head, const attention_rows<S>& rows) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int m = 0; m < S::m_tiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = (threadIdx.x / 32 * S::m_tiles + m) * 16 + half * 8 + g;
      if (r >= tile.tokens * call.group) continue;
      const float most = rows.most[m][half], sum = rows.sum[m][half];
      if (grid.spans == 1) {
        const row_output to(call, tile, kv_head, r);
        const float inverse = inverse_sum(sum);
#pragma unroll
        for (int n = 0; n < S::columns / 8; ++n)
          if (n * 8 < call.d)
            to.pair(call, n * 8 + t * 2, __fmul_rn(rows.out[m][n][2 * half], inverse),
                    __fmul_rn(rows.out[m][n][2 * half + 1], inverse));
        if (t == 0) to.lse(call, most, sum);
      } else {
        const std::int64_t at = grid.partial(blockIdx.x, blockIdx.y, r);
#pragma unroll
        for (int n = 0; n < S::columns / 8; ++n)
          if (n * 8 < call.d)
            *reinterpret_cast<float2*>(grid.partial_out + at * grid.columns + n * 8 + t * 2) =
                float2{rows.out[m][n][2 * half], rows.out[m][n][2 * half + 1]};
        if (t == 0) grid.partial_stats[at] = float2{most, sum};
      }
    }
}

/// Scores of keys that their row does not see become -infinity.
template <class S>
__device__ void mask_tile(const key_list& keys, std::uint32_t first, const std::uint32_t (&limits)[S::m_tiles][2],
                          attention_scores<S>& scores) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int n = 0; n < S::tile_keys / 8; ++n) {
    const std::uint32_t position = keys.position(first + n * 8) + 2 * t;
#pragma unroll
    for (int m = 0; m < S::m_tiles; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (position + i % 2 >= limits[m][i / 2]) scores.values[m][n][i] = -CUDART_INF_F;
  }
}

template <class S>
__global__ void __launch_bounds__(S::threads, 8 / S::warps) attention(attend_call call, attention_grid grid) {
  using T = typename S::value;
  extern __shared__ __align__(16) unsigned char shared[];
  T* const ring = reinterpret_cast<T*>(shared);
  T* const queries = S::queries_in_registers ? ring : ring + S::stages * S::tile_elements;
  auto* const blocks = reinterpret_cast<std::int32_t*>(shared + S::shared_bytes);

  std::int64_t kv_head;
  const token_tile tile = grid.tile_of(call, blockIdx.x, kv_head);
  if (tile.tokens == 0) return;
  const std::uint32_t least = tile.limit(0), most = tile.limit(tile.tokens - 1);
  key_list keys{nullptr, 0, most};
  if (call.ids != nullptr) {
    const std::int64_t visible = visible_blocks({0, 0, tile.first_limit - 1}, call.block);
    const std::uint32_t count = list_blocks(call.ids + tile.first * call.id_row_stride + kv_head * call.id_head_stride,
                                            call.topk, visible, blocks);
    keys = {blocks, static_cast<std::uint32_t>(call.block), count * call.block};
  }
  const std::int64_t begin = blockIdx.y * grid.span_keys;
  const auto end = static_cast<std::uint32_t>(min(begin + grid.span_keys, std::int64_t{keys.count}));
  const auto first = static_cast<std::uint32_t>(min(begin, std::int64_t{end}));
  const std::uint32_t tiles = (end - first + S::tile_keys - 1) / S::tile_keys;

  // Copy `unit` of the tiles of keys (even) and values (odd) into its place in the ring; a group each, even if it is empty.
  const auto place = [ring](std::uint32_t unit) { return ring + unit % S::stages * S::tile_elements; };
  const auto copy_unit = [&](std::uint32_t unit) {
    if (unit < 2 * tiles)
      copy_tile<S>(unit % 2 == 0 ? call.keys : call.values, tile.sequence, kv_head, call.d, keys,
                   first + unit / 2 * S::tile_keys, most, place(unit));
    commit_copies();
  };
  // The unit has come, everyone has done with the one before it, and its place takes the next one.
  const auto await_unit = [&](std::uint32_t unit) {
    wait_copies<S::stages - 2>();
    __syncthreads();
    copy_unit(unit + S::stages - 1);
  };

  copy_queries<S>(call, tile, kv_head, queries);
  commit_copies();
  if (S::queries_in_registers) {
    wait_copies<0>();
    __syncthreads();
  } else {
    for (std::uint32_t unit = 0; unit < S::stages - 1; ++unit) copy_unit(unit);
    wait_copies<S::stages - 1>();
    __syncthreads();
  }
  const query_fragments<S> fragments(queries);
  if (S::queries_in_registers) {
    __syncthreads();
    for (std::uint32_t unit = 0; unit < S::stages - 1; ++unit) copy_unit(unit);
  }

  std::uint32_t limits[S::m_tiles][2];
  const int row = threadIdx.x / 32 * S::m_tiles * 16 + threadIdx.x % 32 / 4;
#pragma unroll
  for (int m = 0; m < S::m_tiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) limits[m][half] = tile.limit((row + m * 16 + half * 8) / call.group);

  const float scale = call.scale * static_cast<float>(CUDART_L2E);
  attention_rows<S> sums, total;
  sums.clear();
  if (S::in_parts) total.clear();
  for (std::uint32_t i = 0; i < tiles; ++i) {
    const std::uint32_t key = first + i * S::tile_keys;
    attention_scores<S> scores;
    await_unit(2 * i);
    score_tile<S>(fragments, place(2 * i), scale, scores);
    if (!keys.all_below(least, key, S::tile_keys)) mask_tile<S>(keys, key, limits, scores);
    weigh_tile<S>(scores, sums);
    await_unit(2 * i + 1);
    add_values<S>(scores, place(2 * i + 1), sums);
    if (S::in_parts && ((key + S::tile_keys) % S::part_keys == 0 || i + 1 == tiles)) {
      sums.gather_sums();
      total.merge(sums);
      sums.clear();
    }
  }
  wait_copies<0>();
  if (!S::in_parts) sums.gather_sums();
  write_rows<S>(call, grid, tile, kv_head, S::in_parts ? total : sums);
}

/// A warp for each row of each tile, a lane for four columns; spans are merged in their order.
inline constexpr int combine_warps = 4;
static __global__ void __launch_bounds__(32 * combine_warps) combine_spans(attend_call call, attention_grid grid) {
  constexpr int ahead = 8;
  const int lane = threadIdx.x % 32, column = lane * 4;
  const std::int64_t warp = std::int64_t{blockIdx.x} * combine_warps + threadIdx.x / 32, item = warp / grid.rows;
  const auto r = static_cast<std::int32_t>(warp % grid.rows);
  std::int64_t kv_head;
  const token_tile tile = grid.tile_of(call, item, kv_head);
  if (r >= tile.tokens * call.group) return;
  float most = -CUDART_INF_F, sum = 0, out[4] = {};
  for (std::int64_t span = 0; span < grid.spans; span += ahead) {
    float2 stats[ahead];
    float4 values[ahead];
#pragma unroll
    for (int i = 0; i < ahead; ++i)
      stats[i] = span + i < grid.spans ? grid.partial_stats[grid.partial(item, span + i, r)] : float2{-CUDART_INF_F, 0};
#pragma unroll
    for (int i = 0; i < ahead; ++i)
      if (stats[i].x != -CUDART_INF_F && column < call.d)
        values[i] = *reinterpret_cast<const float4*>(grid.partial_out + grid.partial(item, span + i, r) * grid.columns +
                                                     column);
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      if (stats[i].x == -CUDART_INF_F) continue;
      const merge_factors factors(most, stats[i].x);
      most = factors.most;
      sum = factors(sum, stats[i].y);
      out[0] = factors(out[0], values[i].x);
      out[1] = factors(out[1], values[i].y);
      out[2] = factors(out[2], values[i].z);
      out[3] = factors(out[3], values[i].w);
    }
  }
  const row_output to(call, tile, kv_head, r);
  const float inverse = inverse_sum(sum);
  if (column < call.d) {
    to.pair(call, column, __fmul_rn(out[0], inverse), __fmul_rn(out[1], inverse));
    to.pair(call, column + 2, __fmul_rn(out[2], inverse), __fmul_rn(out[3], inverse));
  }
  if (lane == 0) to.lse(call, most, sum);
}

template <class S>
void launch_attention(const attend_call& call, const run_context& context, const attention_plan& plan) {
  const auto stream = static_cast<cudaStream_t>(context.stream);
  // More rows than planned for can be there, but no more tokens.
  const std::int64_t rows = std::min(call.rows.row_bound, context.problem.total_q);
  const std::int64_t tiles = token_tile_bound(rows, call.rows.batch, plan.tokens), items = tiles * call.kv_heads;
  if (items == 0) return;
  attention_grid grid{tiles, plan.tokens, plan.spans, plan.span_keys, plan.rows, plan.columns, nullptr, nullptr};
  if (plan.spans > 1) {
    grid.partial_out = static_cast<float*>(context.scratch);
    grid.partial_stats =
        reinterpret_cast<float2*>(grid.partial_out + plan.items * plan.spans * plan.rows * plan.columns);
  }
  const std::size_t shared = S::shared_bytes + (call.ids == nullptr ? 0 : call.topk * sizeof(std::int32_t));
  allow_shared_memory(attention<S>, shared);
  const dim3 blocks(static_cast<unsigned>(items), static_cast<unsigned>(plan.spans));
  attention<S><<<blocks, S::threads, shared, stream>>>(call, grid);
  if (plan.spans > 1)
    combine_spans<<<static_cast<unsigned>(ceil_div(items * plan.rows, combine_warps)), 32 * combine_warps, 0, stream>>>(
        call, grid);
}

}  // namespace msabench::cuda

// SPDX-License-Identifier: Apache-2.0
// Thread blocks of attention: which rows and keys each has, and what becomes of the results of several for the same rows.
#pragma once

#include <math_constants.h>

#include <cstdint>

#include "kernels/cuda/attention_keys.cuh"
#include "kernels/cuda/attention_output.cuh"
#include "kernels/cuda/attention_plan.h"
#include "kernels/cuda/attention_rows.cuh"
#include "kernels/cuda/launch.cuh"

namespace msabench::cuda {

/// What thread blocks know of each other. An item is a tile of tokens and a KV head; its keys are divided into spans.
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

/// As write_rows, into the partial results of this thread block.
template <int m_tiles, int octets>
__device__ void write_partial_rows(const attend_call& call, const attention_grid& grid, const token_tile& tile,
                                   int first, int column, const attention_rows<m_tiles, octets>& rows) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int m = 0; m < m_tiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = first + m * 16 + half * 8 + g;
      if (r >= tile.tokens * call.group) continue;
      const std::int64_t at = grid.partial(blockIdx.x, blockIdx.y, r);
      auto* const to = reinterpret_cast<float2*>(grid.partial_out + at * grid.columns + column);
#pragma unroll
      for (int n = 0; n < octets; ++n) to[n * 4 + t] = float2{rows.out[m][n][2 * half], rows.out[m][n][2 * half + 1]};
      if (column == 0 && t == 0) grid.partial_stats[at] = float2{rows.most[m][half], rows.sum[m][half]};
    }
}

/// The same, or the results themselves where a tile has one span.
template <int m_tiles, int octets>
__device__ void write_span(const attend_call& call, const attention_grid& grid, const token_tile& tile,
                           std::int64_t kv_head, int first, int column, const attention_rows<m_tiles, octets>& rows) {
  if (grid.spans == 1)
    write_rows(call, tile, kv_head, first, column, rows);
  else
    write_partial_rows(call, grid, tile, first, column, rows);
}

/// A thread block for each row of each item, a warp for some of its spans, a lane for four columns. Spans are merged in
/// their order, and so are warps. Of one warp, a row has the bits that it has without spans.
struct span_combine {
  static constexpr int ahead = 16, most_warps = 8;
};

static __global__ void __launch_bounds__(32 * span_combine::most_warps)
    combine_spans(attend_call call, attention_grid grid) {
  constexpr int ahead = span_combine::ahead;
  __shared__ float4 warp_values[span_combine::most_warps][32];
  __shared__ float2 warp_stats[span_combine::most_warps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, column = lane * 4;
  const std::int64_t item = blockIdx.x / grid.rows;
  const auto r = static_cast<std::int32_t>(blockIdx.x % grid.rows);
  std::int64_t kv_head;
  const token_tile tile = grid.tile_of(call, item, kv_head);
  wait_for_previous();
  if (r >= tile.tokens * call.group) return;

  float2 stats{-CUDART_INF_F, 0};
  float4 values{};
  const auto merge = [&](float2 other_stats, float4 other) {
    const merge_factors factors(stats.x, other_stats.x);
    stats = {factors.most, factors(stats.y, other_stats.y)};
    values = {factors(values.x, other.x), factors(values.y, other.y), factors(values.z, other.z),
              factors(values.w, other.w)};
  };
  const std::int64_t share = ceil_div(ceil_div(grid.spans, warps), ahead) * ahead, begin = warp * share;
  const std::int64_t end = min(begin + share, grid.spans);
  for (std::int64_t span = begin; span < end; span += ahead) {
    // All are on their way before the first is looked at, those of spans without keys too.
    float2 other_stats[ahead];
    float4 others[ahead];
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      other_stats[i] = {-CUDART_INF_F, 0};
      if (span + i >= end) continue;
      const std::int64_t at = grid.partial(item, span + i, r);
      other_stats[i] = grid.partial_stats[at];
      if (column < grid.columns)
        others[i] = *reinterpret_cast<const float4*>(grid.partial_out + at * grid.columns + column);
    }
#pragma unroll
    for (int i = 0; i < ahead; ++i)
      if (other_stats[i].x != -CUDART_INF_F) merge(other_stats[i], others[i]);
  }
  if (warps > 1) {
    warp_values[warp][lane] = values;
    if (lane == 0) warp_stats[warp] = stats;
    __syncthreads();
    if (warp > 0) return;
    for (int other = 1; other < warps; ++other)
      if (warp_stats[other].x != -CUDART_INF_F) merge(warp_stats[other], warp_values[other][lane]);
  }
  const row_output to(call, tile, kv_head, r);
  const float inverse = inverse_sum(stats.y);
  if (column < call.d) {
    to.pair(call, column, values.x, values.y, inverse);
    to.pair(call, column + 2, values.z, values.w, inverse);
  }
  if (lane == 0) to.lse(call, stats.x, stats.y);
}

/// The grid of a run, and what of it a launch needs. No items: nothing to do.
struct attention_launch {
  attention_grid grid;
  std::int64_t items;
  dim3 blocks;

  attention_launch(const attend_call& call, const run_context& context, const attention_plan& plan, int columns) {
    // More rows than planned for can be there, but no more tokens.
    const std::int64_t rows = std::min(call.rows.row_bound, context.problem.total_q);
    const std::int64_t tiles = token_tile_bound(rows, call.rows.batch, plan.tokens);
    items = tiles * call.kv_heads;
    grid = {tiles, plan.tokens, plan.spans, plan.span_keys, plan.rows, columns, nullptr, nullptr};
    grid.partial_out = static_cast<float*>(context.scratch);
    grid.partial_stats = reinterpret_cast<float2*>(grid.partial_out + plan.items * plan.spans * plan.rows * columns);
    blocks = {static_cast<unsigned>(items), static_cast<unsigned>(plan.spans)};
  }

  void combine(const attend_call& call, cudaStream_t stream) const {
    if (grid.spans == 1) return;
    const std::int64_t warps = call.ids != nullptr ? 1
                                                   : std::min<std::int64_t>(ceil_div(grid.spans, span_combine::ahead),
                                                                            span_combine::most_warps);
    const auto all = static_cast<unsigned>(items * grid.rows);
    launch_chained(combine_spans, {dim3(all), static_cast<unsigned>(32 * warps), 0, stream, true}, call, grid);
  }
};

}  // namespace msabench::cuda

// SPDX-License-Identifier: Apache-2.0
// Attention over all visible keys, of tokens in their sequence and of patches in their segment.
//
// A thread block computes the rows of a tile of tokens and one KV head, over its span of their keys. Copies run ahead of
// the arithmetic by two tiles; a tile of keys is followed by the tile of its values.
#include <math_constants.h>

#include <cfloat>
#include <cstdint>

#include "kernels/cuda/attention_keys.cuh"
#include "kernels/cuda/attention_plan.h"
#include "kernels/cuda/attention_rows.cuh"
#include "kernels/cuda/attention_shapes.cuh"
#include "kernels/cuda/attention_spans.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/narrow_attention.h"
#include "kernels/cuda/operators.h"

namespace msabench::cuda {
namespace {

constexpr int stages = 3;

/// Scores to weights; what the rows hold so far is rescaled to the new greatest scores. Sums stay those of a lane, and
/// greatest scores are kept without their positive scale, which costs one instruction a score less.
template <class S>
__device__ void weigh_tile(attention_scores<S>& scores, float scale, attention_rows<S::m_tiles, S::octets>& rows) {
#pragma unroll
  for (int m = 0; m < S::m_tiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = rows.most[m][half];
#pragma unroll
      for (int n = 0; n < S::tile_keys / 8; ++n)
        most = fmaxf(most, fmaxf(scores.values[m][n][2 * half], scores.values[m][n][2 * half + 1]));
      most = row_maximum(most);
      // Both products rounded: the factor of a greatest score that stays has to be 1.
      const float reference = __fmul_rn(reference_score(most), scale);
      const float factor = exp2_approximately(__fsub_rn(__fmul_rn(rows.most[m][half], scale), reference));
      rows.most[m][half] = most;
      float sum = 0;
#pragma unroll
      for (int n = 0; n < S::tile_keys / 8; ++n)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          scores.values[m][n][i] = exp2_approximately(__fmaf_rn(scores.values[m][n][i], scale, -reference));
          sum += scores.values[m][n][i];
        }
      rows.sum[m][half] = rows.sum[m][half] * factor + sum;
      // Mostly the greatest score stays what it is, and so does everything else.
      if (__any_sync(~0u, factor != 1))
#pragma unroll
        for (int n = 0; n < S::octets; ++n)
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) rows.out[m][n][i] *= factor;
    }
}

template <class S>
__global__ void __launch_bounds__(S::threads, 2) wide_attention(attend_call call, attention_grid grid) {
  using T = typename S::value;
  extern __shared__ __align__(16) unsigned char shared[];
  T* const queries = reinterpret_cast<T*>(shared);
  T* const ring = queries + S::query_elements;

  std::int64_t kv_head;
  const token_tile tile = grid.tile_of(call, blockIdx.x, kv_head);
  if (tile.tokens == 0) return;
  const std::uint32_t least = tile.limit(0), most = tile.limit(tile.tokens - 1);
  const key_list keys{nullptr, 0, most};
  const std::int64_t begin = blockIdx.y * grid.span_keys;
  const auto end = static_cast<std::uint32_t>(min(begin + grid.span_keys, std::int64_t{most}));
  const auto first = static_cast<std::uint32_t>(min(begin, std::int64_t{end}));
  const std::uint32_t tiles = (end - first + S::tile_keys - 1) / S::tile_keys;

  // Copy a unit, which is tile unit / 2 of the keys (even) or of the values (odd), into the next place of the ring. There
  // is a group for each, even if it is empty.
  std::uint32_t unit = 0, place = 0;
  const auto copy_next = [&] {
    if (unit < 2 * tiles)
      copy_tile<S>(unit % 2 == 0 ? call.keys : call.values, tile.sequence, kv_head, call.d, keys,
                   first + unit / 2 * S::tile_keys, most, ring + unit % stages * S::tile_elements);
    commit_copies();
    ++unit;
  };
  // The next unit has come; everyone has done with the one before it, whose place takes a new one.
  const auto next_unit = [&]() -> const T* {
    wait_copies<stages - 2>();
    __syncthreads();
    copy_next();
    const T* const at = ring + place * S::tile_elements;
    place = place + 1 == stages ? 0 : place + 1;
    return at;
  };

  copy_queries<S>(call, tile, kv_head, S::rows, queries);
  commit_copies();
  for (int i = 0; i + 1 < stages; ++i) copy_next();
  wait_copies<stages - 1>();
  __syncthreads();
  const int row = threadIdx.x / 32 * S::m_tiles * 16;
  const query_fragments<S> fragments(queries + row * S::stride);
  std::uint32_t limits[S::m_tiles][2];
#pragma unroll
  for (int m = 0; m < S::m_tiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      limits[m][half] = tile.limit(static_cast<int>(row + m * 16 + half * 8 + threadIdx.x % 32 / 4) / call.group);

  // No score of -infinity may meet a factor of 0.
  const float signed_scale = call.scale * static_cast<float>(CUDART_L2E), scale = fmaxf(fabsf(signed_scale), FLT_MIN);
  attention_rows<S::m_tiles, S::octets> rows;
  rows.clear();
  for (std::uint32_t i = 0; i < tiles; ++i) {
    const std::uint32_t key = first + i * S::tile_keys;
    attention_scores<S> scores;
    score_tile<S>(fragments, next_unit(), scores);
    if (signed_scale < 0) scale_tile<S>(-1, scores);
    if (key + S::tile_keys > least) mask_tile<S>(keys, key, limits, scores);
    weigh_tile<S>(scores, scale, rows);
    const std::uint32_t values = value_address<S>(next_unit());
#pragma unroll
    for (int k = 0; k < S::tile_keys / 16; ++k) {
      std::uint32_t weights[S::m_tiles][4];
#pragma unroll
      for (int m = 0; m < S::m_tiles; ++m) weight_fragment<S>(scores, m, k, weights[m]);
      add_values<T>(weights, values + k * 16 * S::stride * 2, rows);
    }
  }
  wait_copies<0>();
#pragma unroll
  for (int m = 0; m < S::m_tiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      rows.sum[m][half] = row_sum(rows.sum[m][half]);
      rows.most[m][half] *= scale;
    }
  write_span(call, grid, tile, kv_head, row, 0, rows);
}

template <class S>
void launch_wide(const attend_call& call, const run_context& context, const attention_plan& plan) {
  const auto stream = static_cast<cudaStream_t>(context.stream);
  const attention_launch launch(call, context, plan, S::columns);
  if (launch.items == 0) return;
  constexpr std::size_t shared = sizeof(typename S::value) * (S::query_elements + stages * S::tile_elements);
  allow_shared_memory(wide_attention<S>, shared);
  wide_attention<S><<<launch.blocks, S::threads, shared, stream>>>(call, launch.grid);
  launch.combine(call, stream);
}

template <class T>
void dense_as(const attend_call& call, const run_context& context, const attention_plan& plan) {
  if (plan.columns == 80)
    launch_wide<wide_shape<T, 80>>(call, context, plan);
  else
    launch_wide<wide_shape<T, 128>>(call, context, plan);
}

}  // namespace

void dense(const attend_call& call, const run_context& context) {
  const attention_plan plan = plan_attention(context.problem);
  if (!plan.wide)
    narrow_attention(call, context, plan, false);
  else if (same_type(call.q_type, bf16_type))
    dense_as<__nv_bfloat16>(call, context, plan);
  else
    dense_as<__half>(call, context, plan);
}

}  // namespace msabench::cuda

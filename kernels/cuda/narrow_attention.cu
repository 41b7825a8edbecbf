// SPDX-License-Identifier: Apache-2.0
// The rows of one token and KV head, by the four warps of a thread block: each scores a quarter of the keys of a part, and
// weighs all values of a part in a quarter of the columns.
#include "kernels/cuda/narrow_attention.h"

#include <math_constants.h>

#include "kernels/cuda/attention_keys.cuh"
#include "kernels/cuda/attention_rows.cuh"
#include "kernels/cuda/attention_shapes.cuh"
#include "kernels/cuda/attention_spans.cuh"
#include "kernels/cuda/launch.cuh"

namespace msabench::cuda {
namespace {

/// In shared memory, before the ring of tiles.
template <class S>
struct narrow_shared {
  static constexpr int weight_stride = part_keys + 8;
  union {
    alignas(16) typename S::value queries[narrow_rows * S::stride];  ///< until they are in registers
    alignas(16) typename S::value weights[narrow_rows * weight_stride];
  };
  float most[part_quarters][narrow_rows], sums[part_quarters][narrow_rows];
};

/// Brings lines of a block table closer, whose entries are needed as soon as it is known which.
__device__ inline void prefetch_table(const cache& keys, std::int64_t sequence, std::int64_t limit) {
  if (keys.block_table == nullptr) return;
  constexpr int line = 128 / sizeof(std::int32_t);
  const std::int32_t* const table = keys.block_table + sequence * keys.table_stride;
  const std::int64_t pages = ceil_div(limit, keys.page_size);
  for (std::int64_t i = std::int64_t{threadIdx.x} * line; i < pages; i += std::int64_t{blockDim.x} * line)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(table + i));
}

/// Tiles of keys and values, in turn: how many there is room for, and how many are on their way while one is multiplied.
struct tile_ring {
  std::uint32_t stages, ahead;
};

/// S: a part. Q: a quarter of its keys, by one warp. `follows`: kernels that take a while.
template <class S, class Q>
__global__ void __launch_bounds__(S::threads, 3)
    parts_attention(attend_call call, attention_grid grid, tile_ring tiles, bool follows) {
  using T = typename S::value;
  constexpr int octets = S::octets / part_quarters;  // of a warp
  extern __shared__ __align__(16) unsigned char memory[];
  auto& shared = *reinterpret_cast<narrow_shared<S>*>(memory);
  T* const ring = reinterpret_cast<T*>(memory + sizeof shared);
  auto* const blocks = reinterpret_cast<std::int32_t*>(ring + tiles.stages * S::tile_elements);
  const int quarter = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;

  let_next_begin();
  std::int64_t kv_head;
  const token_tile tile = grid.tile_of(call, blockIdx.x, kv_head);
  const std::uint32_t limit = tile.limit(0), limits[1][2] = {{limit, limit}};
  if (tile.tokens != 0) copy_queries<S>(call, tile, kv_head, narrow_rows, shared.queries);
  commit_copies();
  if (follows) {
    prefetch_table(call.keys, tile.sequence, limit);
    if (call.values.block_table != call.keys.block_table) prefetch_table(call.values, tile.sequence, limit);
  }
  wait_for_previous();
  if (tile.tokens == 0) return;
  key_list keys{nullptr, 0, limit};
  if (call.ids != nullptr) {
    __shared__ std::uint32_t listed;
    if (quarter == 0) {
      const std::int64_t visible = visible_blocks({0, 0, tile.first_limit - 1}, call.block);
      const std::int32_t* const ids = call.ids + tile.first * call.id_row_stride + kv_head * call.id_head_stride;
      listed = list_blocks(ids, call.topk, visible, blocks);
    }
    __syncthreads();
    keys = {blocks, static_cast<std::uint32_t>(call.block), listed * call.block};
  }
  const std::int64_t begin = blockIdx.y * grid.span_keys;
  const auto end = static_cast<std::uint32_t>(min(begin + grid.span_keys, std::int64_t{keys.count}));
  const auto first = static_cast<std::uint32_t>(min(begin, std::int64_t{end}));
  const std::uint32_t parts = (end - first + part_keys - 1) / part_keys;

  // Keys of a part are followed by its values; a group of copies for each, even if it is empty.
  std::uint32_t unit = 0, place = 0;
  const auto copy_next = [&] {
    if (unit < 2 * parts)
      copy_tile<S>(unit % 2 == 0 ? call.keys : call.values, tile.sequence, kv_head, call.d, keys,
                   first + unit / 2 * part_keys, limit, ring + unit % tiles.stages * S::tile_elements);
    commit_copies();
    ++unit;
  };
  const auto await_copies = [&] {
    if (tiles.ahead == 1)
      wait_copies<0>();
    else
      wait_copies<1>();
    __syncthreads();
  };
  // The next tile has come; everyone has done with the one before it, whose place takes a new one.
  const auto next_tile = [&]() -> const T* {
    await_copies();
    copy_next();
    const T* const at = ring + place * S::tile_elements;
    place = place + 1 == tiles.stages ? 0 : place + 1;
    return at;
  };

  for (std::uint32_t i = 0; i < tiles.ahead; ++i) copy_next();
  if (tiles.ahead == 1)
    wait_copies<1>();
  else
    wait_copies<2>();
  __syncthreads();
  const query_fragments<Q> fragments(shared.queries);
  const std::uint32_t weight_row = shared_address(shared.weights + lane % 16 * shared.weight_stride + lane / 16 * 8);
  const float scale = call.scale * static_cast<float>(CUDART_L2E);
  attention_rows<1, octets> total;
  total.clear();
  for (std::uint32_t i = 0; i < parts; ++i) {
    const std::uint32_t key = first + i * part_keys + quarter * Q::tile_keys;
    attention_scores<Q> scores;
    score_tile<Q>(fragments, next_tile() + quarter * Q::tile_keys * S::stride, scores);
    scale_tile<Q>(scale, scores);
    if (!keys.all_below(limit, key, Q::tile_keys)) mask_tile<Q>(keys, key, limits, scores);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = -CUDART_INF_F;
#pragma unroll
      for (int n = 0; n < Q::tile_keys / 8; ++n)
        most = fmaxf(most, fmaxf(scores.values[0][n][2 * half], scores.values[0][n][2 * half + 1]));
      most = row_maximum(most);
      if (t == 0) shared.most[quarter][g + half * 8] = most;
    }
    __syncthreads();

    attention_rows<1, octets> part;
    part.clear();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = g + half * 8;
      float most = -CUDART_INF_F, sum = 0;
#pragma unroll
      for (int other = 0; other < part_quarters; ++other) most = fmaxf(most, shared.most[other][row]);
      part.most[0][half] = most;
#pragma unroll
      for (int n = 0; n < Q::tile_keys / 8; ++n) {
        float(&pair)[4] = scores.values[0][n];
        sum += weigh(pair[2 * half], most);
        sum += weigh(pair[2 * half + 1], most);
        *reinterpret_cast<std::uint32_t*>(shared.weights + row * shared.weight_stride + quarter * Q::tile_keys + n * 8 +
                                          t * 2) = storage<T>::pack(pair[2 * half], pair[2 * half + 1]);
      }
      sum = row_sum(sum);
      if (t == 0) shared.sums[quarter][row] = sum;
    }

    const std::uint32_t values = value_address<S>(next_tile()) + quarter * octets * 16;
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int other = 0; other < part_quarters; ++other) part.sum[0][half] += shared.sums[other][g + half * 8];
#pragma unroll
    for (int k = 0; k < part_keys / 16; ++k) {
      std::uint32_t weights[1][4];
      load_matrices(weights[0], weight_row + k * 32);
      add_values<T>(weights, values + k * 16 * S::stride * 2, part);
    }
    total.merge(part);
  }
  wait_copies<0>();
  write_span(call, grid, tile, kv_head, 0, quarter * octets * 8, total);
}

template <class T, int columns>
void launch_parts(const attend_call& call, const run_context& context, const attention_plan& plan, bool follows) {
  using S = part_shape<T, columns>;
  using Q = attention_shape<T, columns, 1, 1, part_keys / part_quarters>;
  const auto stream = static_cast<cudaStream_t>(context.stream);
  const attention_launch launch(call, context, plan, columns);
  // Without rows the kernel before has not been launched either, and the first one of a run overlaps with nothing.
  if (launch.items == 0 || call.rows.row_bound == 0) return;
  const auto bytes = [&](std::uint32_t stages) {
    return sizeof(narrow_shared<S>) + sizeof(T) * stages * S::tile_elements +
           (call.ids == nullptr ? 0 : call.topk * sizeof(std::int32_t));
  };
  // Of one part there are no further tiles, and the fewer bytes the more thread blocks.
  const bool one_part = plan.span_keys == part_keys, roomy = bytes(3) <= most_shared_memory();
  const tile_ring tiles{one_part || !roomy ? 2u : 3u, one_part || roomy ? 2u : 1u};
  launch_chained(parts_attention<S, Q>, {launch.blocks, S::threads, bytes(tiles.stages), stream, follows}, call,
                 launch.grid, tiles, follows);
  launch.combine(call, stream);
}

template <class T>
void narrow_as(const attend_call& call, const run_context& context, const attention_plan& plan, bool follows) {
  if (plan.columns == 64)
    launch_parts<T, 64>(call, context, plan, follows);
  else
    launch_parts<T, 128>(call, context, plan, follows);
}

}  // namespace

void narrow_attention(const attend_call& call, const run_context& context, const attention_plan& plan, bool follows) {
  if (same_type(call.q_type, bf16_type))
    narrow_as<__nv_bfloat16>(call, context, plan, follows);
  else
    narrow_as<__half>(call, context, plan, follows);
}

}  // namespace msabench::cuda

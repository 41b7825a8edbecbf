// SPDX-License-Identifier: Apache-2.0
// dq: a block of threads for each (token, KV head), whose query heads are the 16 rows of a tile. Its warps take turns at
// pieces of 32 keys, each with memory of its own, and never wait for each other; their sums are added up at the end. S, dS
// and the sums stay in registers: what a product leaves in a lane is what the next one needs there.
#include <math_constants.h>

#include "kernels/cuda/backward.cuh"

namespace msabench::cuda {
namespace {

constexpr int warps = 4, tile_rows = 16;

template <class T>
using tile = shared_tile<T, width>;

/// Shared memory, in bytes from its start.
constexpr int tile_bytes = tile_rows * width * 2, piece_bytes = piece_keys * width * 2;
constexpr int queries_at = 0, d_out_at = tile_bytes, pieces_at = 2 * tile_bytes;
constexpr int ids_at = pieces_at + warps * 2 * piece_bytes;
static_assert(2 * piece_bytes >= tile_rows * width * 4, "a warp's sums lie where its keys did");

template <class T>
__global__ void __launch_bounds__(warps* warp, 3) query_gradients(backward_run r) {
  extern __shared__ __align__(256) char memory[];
  __shared__ int id_count;
  const backward_call& c = r.call;
  const std::uint32_t base = shared_address(memory);
  const int w = threadIdx.x / warp, lane = threadIdx.x % warp;
  const lane_place at;
  const tile<T> queries(base + queries_at), d_out(base + d_out_at);
  const tile<T> keys(base + pieces_at + w * 2 * piece_bytes), values(base + pieces_at + (w * 2 + 1) * piece_bytes);
  auto* const blocks = reinterpret_cast<std::int32_t*>(memory + ids_at);

  const std::int64_t tokens = c.rows.tokens();
  const int parts = (c.group + tile_rows - 1) / tile_rows;  // of a group
  const std::int64_t items = tokens * c.kv_heads * parts;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    // Later tokens see more keys, and long tasks come first; a head's keys stay in the cache.
    const std::int64_t row = tokens - 1 - item / parts % tokens;
    const auto kv_head = static_cast<std::int32_t>(item / parts / tokens);
    const int first_member = static_cast<int>(item % parts) * tile_rows, members = c.group - first_member;
    const std::int32_t first_head = kv_head * c.group + first_member;
    const row_place place = c.rows.place(row);
    const std::int64_t visible = visible_blocks(place, c.block);

    for (int i = threadIdx.x; i < tile_rows * tile<T>::chunks; i += warps * warp) {
      const int member = i / tile<T>::chunks;
      const std::int32_t head = first_head + (member < members ? member : 0);
      queries.copy(member, i % tile<T>::chunks, c.q.at(row, head), c.d, member < members);
      d_out.copy(member, i % tile<T>::chunks, c.d_out.at(row, head), c.d, member < members);
    }
    commit_copies();
    const bool selected = c.ids != nullptr;
    if (selected && w == 0) {
      const int count = collect_blocks(r.readers.ids.row(row, kv_head), c.topk, visible, blocks);
      if (lane == 0) id_count = count;
    }
    // Rows without a head weigh nothing.
    row_sums sums[2] = {{CUDART_INF_F, 0}, {CUDART_INF_F, 0}};
    for (int half = 0; half < 2; ++half)
      if (at.g + half * 8 < members) sums[half] = r.sums_of(row, first_head + at.g + half * 8);
    wait_copies<0>();
    __syncthreads();

    const key_rows all_keys(c.keys, place.sequence, kv_head), all_values(c.values, place.sequence, kv_head);
    const row_keys own_keys(selected ? blocks : nullptr, selected ? id_count : static_cast<int>(visible), c.block,
                            place.position);
    float dq[width / 8][4] = {};
    key_piece now = own_keys.at(w);
    load_piece<T>(values, all_values, now, c.d);
    load_piece<T>(keys, all_keys, now, c.d);
    for (int piece = w; piece < own_keys.pieces; piece += warps) {
      const key_piece next = own_keys.at(piece + warps);
      float ds[piece_keys / 8][4], scores[piece_keys / 8][4];
      wait_copies<1>();
      __syncwarp();
      multiply_rows(ds, d_out, 0, values, 0);
      __syncwarp();
      load_piece<T>(values, all_values, next, c.d);
      wait_copies<1>();
      __syncwarp();
      multiply_rows(scores, queries, 0, keys, 0);
#pragma unroll
      for (int n = 0; n < piece_keys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int key = n * 8 + at.t * 2 + i % 2;
          const row_sums& own = sums[i / 2];
          const float weight = exp2f(scores[n][i] * (c.scale * log2e) - own.lse);
          ds[n][i] = key < now.count ? weight * (ds[n][i] - own.delta) : 0.0f;
        }
      add_products<T>(dq, ds, keys, 0);
      __syncwarp();
      load_piece<T>(keys, all_keys, next, c.d);
      now = next;
    }
    wait_copies<0>();
    __syncwarp();

    auto* const own = reinterpret_cast<float*>(memory + pieces_at + w * 2 * piece_bytes);
#pragma unroll
    for (int n = 0; n < width / 8; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        *reinterpret_cast<float2*>(own + (at.g + half * 8) * width + n * 8 + at.t * 2) =
            make_float2(dq[n][half * 2], dq[n][half * 2 + 1]);
    __syncthreads();
    for (int i = threadIdx.x; i < tile_rows * width / 2; i += warps * warp) {
      const int member = i / (width / 2), column = i % (width / 2) * 2;
      if (member >= members || column >= c.d) continue;
      float2 sum = make_float2(0, 0);
      for (int other = 0; other < warps; ++other) {
        const float2 part = *reinterpret_cast<const float2*>(memory + pieces_at + other * 2 * piece_bytes +
                                                             (member * width + column) * 4);
        sum = make_float2(sum.x + part.x, sum.y + part.y);
      }
      store_pair(c.dq.at(row, first_head + member, c.gradient_type), c.gradient_type, column, sum.x * c.scale,
                 sum.y * c.scale);
    }
    __syncthreads();  // the next item uses the same memory
  }
}

}  // namespace

template <class T>
void add_query_gradients(const backward_run& r, cudaStream_t stream) {
  const std::size_t bytes = ids_at + (r.call.ids == nullptr ? 0 : std::size_t(r.call.topk) * sizeof(std::int32_t));
  allow_shared_memory(query_gradients<T>, bytes);
  const std::int64_t items = r.call.rows.row_bound * r.call.kv_heads * ceil_div(r.call.group, tile_rows);
  query_gradients<T><<<grid_blocks(items, 1, 64), warps * warp, bytes, stream>>>(r);
}

template void add_query_gradients<__nv_bfloat16>(const backward_run&, cudaStream_t);
template void add_query_gradients<__half>(const backward_run&, cudaStream_t);

}  // namespace msabench::cuda

// SPDX-License-Identifier: Apache-2.0
// Attention over selected blocks for few query tokens, where the time to an answer counts: the rows of a token and a KV
// head are a cluster's, whose thread blocks divide its blocks of keys and put their results together in shared memory.
//
// load     queries, before the index branch is done; then keys, straight into the registers that multiply them, and
//          values into shared memory
// score    a warp multiplies 16 keys of the block with all heads
// weigh    relative to the greatest score so far, of which warps tell each other
// add      a warp has 16 columns of the values of all 128 keys
// merge    the thread blocks of the cluster, each some heads
#pragma once

#include <math_constants.h>

#include "kernels/cuda/attention_keys.cuh"
#include "kernels/cuda/attention_output.cuh"
#include "kernels/cuda/attention_rows.cuh"
#include "kernels/cuda/index_keys.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda_sm90/cluster.cuh"
#include "kernels/cuda_sm90/decode_rows.cuh"
#include "kernels/cuda_sm90/row_selection.cuh"

namespace msabench::cuda_sm90 {

struct decode_attention_call {
  attend_call attend;
  int places;          ///< 1 << places thread blocks are a cluster
  int ahead;           ///< blocks of a thread block that are brought to the second-level cache
  select_call select;  ///< scores nullptr: ids are those of attend; ids nullptr: not wanted
};

template <class T>
struct decode_attention_shape {
  using value = T;
  static constexpr int warps = 8, threads = 32 * warps;
  static constexpr int d = 128, rows = 16;  ///< heads of a group, padded
  static constexpr int most_places = 4;
  static constexpr int keys = decode_block, warp_keys = keys / warps, warp_columns = d / warps;
  static constexpr int stride = d + 8;  ///< of rows in shared memory, which then lie in different banks
  static constexpr int tile_elements = keys * stride;

  /// Of a head, of one thread block's keys: before the division by the sum, which is that of its warps.
  struct result {
    float out[d];
    float sums[warps];
    float most;
    float unused[3];
  };

  /// Followed by one or two tiles of values.
  struct memory {
    uint4 queries[rows * d / 8];  ///< as cuda::placed has them
    alignas(16) T weights[rows * stride];
    alignas(16) float most[rows][warps];
    alignas(16) result results[rows];          ///< [heads that are merged here][spans], stored by the cluster
    std::int32_t listed[cuda::most_selected];  ///< ids that were given
    row_selection<threads> selection;
  };
  static constexpr std::size_t shared_bytes(int tiles) { return sizeof(memory) + sizeof(T) * tiles * tile_elements; }
};

/// 16 bytes that nobody else on this multiprocessor will read.
__device__ inline uint4 load_once(const char* from) {
  uint4 x;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(from));
  return x;
}

__device__ inline void prefetch_line(const void* line) { asm volatile("prefetch.global.L2 [%0];" ::"l"(line)); }

/// Brings lines of a block table closer, whose entries are needed as soon as it is known which.
__device__ inline void prefetch_table(const cache& keys, std::int64_t sequence, std::int64_t limit) {
  if (keys.block_table == nullptr) return;
  constexpr int line = 128 / sizeof(std::int32_t);
  const std::int32_t* const table = keys.block_table + sequence * keys.table_stride;
  const std::int64_t pages = cuda::ceil_div(limit, keys.page_size);
  for (std::int64_t i = std::int64_t{threadIdx.x} * line; i < pages; i += std::int64_t{blockDim.x} * line)
    prefetch_line(table + i);
}

/// The page of a block, or the first key of its sequence. Keys and values have it in common. A page of one block needs
/// no division.
__device__ inline std::int32_t block_origin(const cache& keys, std::int64_t sequence, int block) {
  if (keys.block_table == nullptr) return keys.cu_seqlens_kv[sequence];
  const int of_page = static_cast<int>(keys.page_size) / decode_block;
  return keys.block_table[sequence * keys.table_stride + (of_page == 1 ? block : block / of_page)];
}

/// Address of a block's first key, which all of it follow: pages have whole blocks.
__device__ inline const char* block_address(const cache& keys, std::int64_t head, const selected_block& block) {
  std::int64_t element = head * keys.head_stride;
  if (keys.block_table == nullptr) {
    element += (block.origin + std::int64_t{block.id} * decode_block) * keys.token_stride;
  } else {
    const int of_page = static_cast<int>(keys.page_size) / decode_block;
    element += block.origin * keys.page_stride;
    if (of_page != 1) element += block.id % of_page * decode_block * keys.token_stride;
  }
  return keys.data + element * 2;
}

/// Of the eight warps, in their order.
template <class Combine>
__device__ float over_warps(const float (&values)[8], Combine combine) {
  const float4 low = *reinterpret_cast<const float4*>(values), high = *reinterpret_cast<const float4*>(values + 4);
  return combine(combine(combine(low.x, low.y), combine(low.z, low.w)),
                 combine(combine(high.x, high.y), combine(high.z, high.w)));
}

/// Heads are merged by the thread block of their number, and of every further multiple of spans.
struct head_owner {
  int spans, places;  ///< spans is 1 << places

  __device__ explicit head_owner(const decode_attention_call& s) : spans(1 << s.places), places(s.places) {}
  __device__ int rank(int head) const { return head & (spans - 1); }
  /// Of what span `span` has of it, among the results.
  __device__ int place(int head, int span) const { return (head >> places << places) + span; }
};

/// Stores what a lane has of the sums where they are merged: 16 columns of a warp, of heads g and g + 8.
template <class S>
__device__ void store_results(const decode_attention_call& s, int span, const cuda::attention_rows<1, 2>& rows,
                              typename S::memory& shared) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const head_owner owner(s);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int head = g + 8 * half;
    const float sum = cuda::row_sum(rows.sum[0][half]);
    if (head >= s.attend.group) continue;
    const auto& result = shared.results[owner.place(head, span)];
    const std::uint32_t to = address_in(owner.rank(head), &result.out[warp * S::warp_columns + 2 * t]);
#pragma unroll
    for (int n = 0; n < 2; ++n)
      store_in(to + n * 8 * sizeof(float), rows.out[0][n][2 * half], rows.out[0][n][2 * half + 1]);
    if (t == 0) store_in(address_in(owner.rank(head), &result.sums[warp]), sum);
    if (t == 0 && warp == 0) store_in(address_in(owner.rank(head), &result.most), rows.most[0][half]);
  }
}

/// Puts the results of the cluster together. A lane has what one of the thread blocks tells of a head, and tells the
/// others.
template <class S>
__device__ void merge_results(const decode_attention_call& s, int span, std::int64_t row, std::int64_t kv_head,
                              const typename S::memory& shared) {
  constexpr int pairs = S::d / 2;
  static_assert(pairs % 32 == 0 && 1 << S::most_places <= 32);
  const attend_call& c = s.attend;
  const head_owner owner(s);
  const int lane = threadIdx.x % 32;
  for (int i = threadIdx.x;; i += S::threads) {
    const int head = span + (i / pairs << owner.places), column = i % pairs * 2;
    if (head >= c.group) break;
    const auto* const results = shared.results + owner.place(head, 0);
    const float own_most = lane < owner.spans ? results[lane].most : -CUDART_INF_F;
    float most = own_most;
    for (int distance = owner.spans / 2; distance > 0; distance /= 2)
      most = fmaxf(most, __shfl_xor_sync(cuda::all_lanes, most, distance));
    most = __shfl_sync(cuda::all_lanes, most, 0);
    const float own_factor = cuda::exp2_approximately(own_most - cuda::reference_score(most));
    float sum = lane < owner.spans ? over_warps(results[lane].sums, [](float a, float b) { return a + b; }) : 0;
    sum *= own_factor;
    for (int distance = owner.spans / 2; distance > 0; distance /= 2)
      sum += __shfl_xor_sync(cuda::all_lanes, sum, distance);
    sum = __shfl_sync(cuda::all_lanes, sum, 0);
    float2 out{};
#pragma unroll 4
    for (int other = 0; other < owner.spans; ++other) {
      const float factor = __shfl_sync(cuda::all_lanes, own_factor, other);
      const float2 values = *reinterpret_cast<const float2*>(&results[other].out[column]);
      out.x = __fmaf_rn(values.x, factor, out.x);
      out.y = __fmaf_rn(values.y, factor, out.y);
    }
    cuda::token_tile tile{};
    tile.first = row;
    const cuda::row_output to(c, tile, kv_head, head);
    to.pair(c, column, out.x, out.y, cuda::inverse_sum(sum));
    if (column == 0) to.lse(c, most, sum);
  }
}

template <class S>
__global__ void __launch_bounds__(S::threads, 2) attend_few(const __grid_constant__ decode_attention_call s) {
  using T = typename S::value;
  extern __shared__ __align__(16) unsigned char dynamic[];
  auto& shared = *reinterpret_cast<typename S::memory*>(dynamic);
  T* const tiles = reinterpret_cast<T*>(dynamic + sizeof shared);
  const attend_call& c = s.attend;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const head_owner owner(s);
  const int span = static_cast<int>(blockIdx.x) & (owner.spans - 1);
  const unsigned item = blockIdx.x >> owner.places, heads = static_cast<unsigned>(c.kv_heads);
  const std::int64_t row = item / heads, kv_head = item % heads;

  begin_meeting();

  // What does not depend on the ids.
  row_place place{};
  const bool there = place_row(c.rows, row, place);
  const auto limit = static_cast<std::uint32_t>(max(std::int64_t{0}, place.position + 1));  // keys that the token sees
  if (there) {
    constexpr int pieces = S::d / 8;
    static_assert(S::rows * pieces == S::threads);
    const int head = threadIdx.x / pieces, piece = threadIdx.x % pieces;
    const std::int64_t element = row * c.q_row_stride + (kv_head * c.group + head) * c.q_head_stride + piece * 8;
    cuda::copy_async(cuda::shared_address(shared.queries + cuda::placed<pieces>(head, piece)),
                     head < c.group ? c.q + element * 2 : c.q, head < c.group);
    cuda::commit_copies();
    prefetch_table(c.keys, place.sequence, limit);
  }
  const std::int64_t visible = visible_blocks(place, decode_block), scored = min(visible, s.select.max_blocks);
  const auto look = [&](std::int32_t block) { return block_origin(c.keys, place.sequence, block); };
  if (there && s.select.scores != nullptr) shared.selection.choose_forced(s.select.rule, scored, look);
  // What is asked of these later is in the cache of constants then.
  asm volatile("" ::"l"(c.out), "l"(c.out_row_stride), "l"(c.out_head_stride), "l"(c.lse), "l"(s.select.scores),
               "l"(s.select.ids), "r"(s.select.rule.topk));
  cuda::wait_copies<0>();
  end_meeting();
  cuda::wait_for_previous();
  if (!there) return;  // and the whole cluster

  const selected_block* const blocks = shared.selection.chosen;
  int count;
  if (s.select.scores != nullptr) {
    const select_call& from = s.select;
    shared.selection.choose(from.rule, scored,
                            from.scores + kv_head * from.score_head_stride + row * from.score_row_stride,
                            from.max_blocks, look);
    count = static_cast<int>(min(scored, std::int64_t{from.rule.topk}));
  } else {
    if (warp == 0) {
      const std::int32_t* const ids = c.ids + row * c.id_row_stride + kv_head * c.id_head_stride;
      const int listed = static_cast<int>(cuda::list_blocks(ids, c.topk, visible, shared.listed));
      if (lane < listed) shared.selection.chosen[lane] = {shared.listed[lane], look(shared.listed[lane])};
      if (lane == 0) shared.selection.count = listed;
    }
    __syncthreads();
    count = shared.selection.count;
  }
  const int share = (count + owner.spans - 1) >> owner.places, first = span * share, last = min(first + share, count);

  uint4 keys[S::d / 32][2];
  const auto load_keys = [&](int slot) {
    const std::uint32_t most = limit - 1 - blocks[slot].id * S::keys;
    const char* const from = block_address(c.keys, kv_head, blocks[slot]) + t * 16;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      // Past the last key that the token sees, that one: others may hold anything, or not be there.
      const std::uint32_t key = min(static_cast<std::uint32_t>(warp * S::warp_keys + n * 8 + g), most);
      const char* const of_key = from + key * c.keys.token_stride * 2;
#pragma unroll
      for (int j = 0; j < S::d / 32; ++j) keys[j][n] = load_once(of_key + j * 64);
    }
  };
  const auto start_values = [&](int slot) {
    constexpr int pieces = S::d / 8, rows_at_once = S::threads / pieces;
    const std::uint32_t sees = limit - blocks[slot].id * S::keys;
    const std::uint32_t own = threadIdx.x / pieces, piece = threadIdx.x % pieces;
    const std::int64_t stride = c.values.token_stride * 2;
    const char* from = block_address(c.values, kv_head, blocks[slot]) + own * stride + piece * 16;
    const std::uint32_t to =
        cuda::shared_address(tiles + (slot - first) % 2 * S::tile_elements + own * S::stride + piece * 8);
#pragma unroll
    for (int i = 0; i < S::keys / rows_at_once; ++i, from += rows_at_once * stride)
      cuda::copy_async(to + i * rows_at_once * S::stride * 2, from, own + i * rows_at_once < sees);
  };

  // Brings a block to the second-level cache, from which it is had in a fraction of the time.
  const auto prefetch_block = [&](int slot) {
    constexpr int lines = S::d * 2 / 128;  // of a row
    static_assert(lines * S::keys == S::threads);
    if (slot >= last) return;
    const std::uint32_t key = threadIdx.x / lines, sees = limit - blocks[slot].id * S::keys;
    if (key >= sees) return;
    for (const cache* from : {&c.keys, &c.values})
      prefetch_line(block_address(*from, kv_head, blocks[slot]) + key * from->token_stride * 2 +
                    threadIdx.x % lines * 128);
  };
  if (first < last) {
    load_keys(first);
    start_values(first);
  }
  cuda::commit_copies();
  if (first + 1 < last) start_values(first + 1);
  cuda::commit_copies();
  for (int slot = first + 1; slot <= first + s.ahead; ++slot) prefetch_block(slot);
  if (s.select.ids != nullptr && span == 0 && warp == 0)
    shared.selection.write_ids(s.select.rule, scored,
                               s.select.ids + row * s.select.id_row_stride + kv_head * s.select.id_head_stride);

  cuda::query_operands queries[S::d / 32];
#pragma unroll
  for (int j = 0; j < S::d / 32; ++j)
    queries[j] = cuda::query_operands(shared.queries[cuda::placed<S::d / 8>(g, 4 * j + t)],
                                      shared.queries[cuda::placed<S::d / 8>(g + 8, 4 * j + t)]);

  const float scale = c.scale * static_cast<float>(CUDART_L2E);
  const std::uint32_t weight_row = cuda::shared_address(shared.weights + lane % 16 * S::stride + lane / 16 * 8);
  cuda::attention_rows<1, 2> total;  // 16 columns
  total.clear();
  for (int slot = first; slot < last; ++slot) {
    float scores[2][4] = {};
#pragma unroll
    for (int j = 0; j < S::d / 32; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const uint4& key = keys[j][n];
          if (half == 0)
            cuda::mma<T>(scores[n], queries[j].first, key.x, key.y);
          else
            cuda::mma<T>(scores[n], queries[j].second, key.z, key.w);
        }
    if (slot + 1 < last) load_keys(slot + 1);
    if (s.ahead > 0) prefetch_block(slot + 1 + s.ahead);

    const std::uint32_t key = blocks[slot].id * S::keys + warp * S::warp_keys + 2 * t;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        scores[n][i] = key + 8 * n + i % 2 < limit ? __fmul_rn(scores[n][i], scale) : -CUDART_INF_F;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float most = cuda::row_maximum(fmaxf(fmaxf(scores[0][2 * half], scores[0][2 * half + 1]),
                                                 fmaxf(scores[1][2 * half], scores[1][2 * half + 1])));
      if (t == 0) shared.most[g + 8 * half][warp] = most;
    }
    __syncthreads();  // maxima are there; weights and values of the block before are done with
    if (slot > first) {
      if (slot + 1 < last) start_values(slot + 1);
      cuda::commit_copies();
    }

#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float before = total.most[0][half];
      const float most = fmaxf(before, over_warps(shared.most[g + 8 * half], fmaxf));
      const float factor = cuda::exp2_approximately(before - cuda::reference_score(most));
      total.most[0][half] = most;
      float sum = 0;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        float &low = scores[n][2 * half], &high = scores[n][2 * half + 1];
        sum += cuda::weigh(low, most);
        sum += cuda::weigh(high, most);
        *reinterpret_cast<std::uint32_t*>(shared.weights + (g + 8 * half) * S::stride + warp * S::warp_keys + n * 8 +
                                          t * 2) = cuda::storage<T>::pack(low, high);
        total.out[0][n][2 * half] *= factor;
        total.out[0][n][2 * half + 1] *= factor;
      }
      total.sum[0][half] = __fmaf_rn(total.sum[0][half], factor, sum);
    }
    cuda::wait_copies<1>();
    __syncthreads();  // weights and values are there

    const std::uint32_t values =
        cuda::shared_address(tiles + (slot - first) % 2 * S::tile_elements + lane % 16 * S::stride + lane / 16 * 8) +
        warp * S::warp_columns * 2;
#pragma unroll
    for (int k = 0; k < S::keys / 16; ++k) {
      std::uint32_t weights[1][4];
      cuda::load_matrices(weights[0], weight_row + k * 32);
      cuda::add_values<T>(weights, values + k * 16 * S::stride * 2, total);
    }
  }
  cuda::wait_copies<0>();

  store_results<S>(s, span, total, shared);
  begin_meeting();
  end_meeting();
  merge_results<S>(s, span, row, kv_head, shared);
}

}  // namespace msabench::cuda_sm90

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
#include "kernels/cuda_sm90/widening.cuh"

namespace msabench::cuda_sm90 {

struct decode_attention_call {
  attend_call attend;
  int places;                 ///< 1 << places thread blocks are a cluster
  select_call select;         ///< scores nullptr: ids are those of attend; ids nullptr: not wanted
  const std::uint32_t* done;  ///< as those that score count; nullptr: all scores are there when their kernel is done
  bool rehearses;             ///< there is time before the scores are there
};

/// Keys and values are stored as Stored, and multiplied as T.
template <class T, class Stored = T>
struct decode_attention_shape {
  using value = T;
  static constexpr bool is_e4m3 = cuda_sm90::is_e4m3<Stored>;
  static constexpr int warps = 8, threads = 32 * warps;
  static constexpr int d = 128, rows = 16;  ///< heads of a group, padded
  static constexpr int most_places = 4;
  static constexpr int element_bytes = sizeof(Stored), pieces = d * element_bytes / 16;  ///< of a stored row
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
  static constexpr std::uint32_t result_bytes = sizeof(float) * (d + warps + 1);  ///< that are sent

  struct place {
    const char *keys, *values;  ///< of a block's first key
    const float *key_scales, *value_scales;
  };
  /// Followed by one or two tiles of values.
  struct memory {
    uint4 queries[rows * d / 8];  ///< as cuda::placed has them
    alignas(16) T weights[rows * stride];
    alignas(16) float most[rows][warps];
    alignas(16) result results[rows];  ///< [heads that are merged here][spans], sent by the cluster
    barrier all_sent;
    row_selection<threads> selection;
    std::int32_t blocks[cuda::most_selected];  ///< in any order
    place places[cuda::most_selected];         ///< of these
  };
  static_assert(row_selection<threads>::step * sizeof(float) <= sizeof(T) * tile_elements);
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

/// Brings lines of a block table closer, whose entries are needed as soon as it is known which.
__device__ inline void prefetch_table(const cache& keys, std::int64_t sequence, std::int64_t limit) {
  if (keys.block_table == nullptr) return;
  constexpr int line = 128 / sizeof(std::int32_t);
  const std::int32_t* const table = keys.block_table + sequence * keys.table_stride;
  const std::int64_t pages = cuda::ceil_div(limit, keys.page_size);
  for (std::int64_t i = std::int64_t{threadIdx.x} * line; i < pages; i += std::int64_t{blockDim.x} * line)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(table + i));
}

/// Where a block's first key is, which all of it follow: pages have whole blocks. A page of one block needs no division.
struct block_origin {
  std::int64_t page;    ///< or the first key of the sequence
  std::int32_t behind;  ///< blocks

  __device__ block_origin(const cache& keys, std::int64_t sequence, int block) : behind(block) {
    if (keys.block_table == nullptr) {
      page = keys.cu_seqlens_kv[sequence];
      return;
    }
    const int of_page = static_cast<int>(keys.page_size) / decode_block,
              number = of_page == 1 ? block : block / of_page;
    page = keys.block_table[sequence * keys.table_stride + number];
    behind = block - number * of_page;
  }
  /// Of the keys, or of their scales.
  template <class Strides>
  __device__ std::int64_t element(const cache& keys, const Strides& s, std::int64_t head) const {
    return page * (keys.block_table == nullptr ? s.token_stride : s.page_stride) +
           behind * decode_block * s.token_stride + head * s.head_stride;
  }
};

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
  /// Of those below `heads`.
  __device__ int heads(int rank, int heads) const { return rank < heads ? (heads - rank + spans - 1) >> places : 0; }
};

/// Sends what a lane has of the sums: 16 columns of a warp, of heads g and g + 8.
template <class S>
__device__ void send_results(const decode_attention_call& s, int span, const cuda::attention_rows<1, 2>& rows,
                             typename S::memory& shared) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const head_owner owner(s);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int head = g + 8 * half;
    const float sum = cuda::row_sum(rows.sum[0][half]);
    if (head >= s.attend.group) continue;
    const auto& result = shared.results[owner.place(head, span)];
    const std::uint32_t told = address_in(owner.rank(head), &shared.all_sent);
    const std::uint32_t to = address_in(owner.rank(head), &result.out[warp * S::warp_columns + 2 * t]);
#pragma unroll
    for (int n = 0; n < 2; ++n)
      send(to + n * 8 * sizeof(float), rows.out[0][n][2 * half], rows.out[0][n][2 * half + 1], told);
    if (t == 0) send(address_in(owner.rank(head), &result.sums[warp]), sum, told);
    if (t == 0 && warp == 0) send(address_in(owner.rank(head), &result.most), rows.most[0][half], told);
  }
}

/// Of weights whose greatest score is `most`. In double where they are added: the declared error is absolute, and fp32
/// misses it once the sum passes a few hundred.
__device__ inline float log_sum(float most, float sum) {
  if (most == -CUDART_INF_F) return most;
  if (!isfinite(sum)) return sum;
  const int bits = __float_as_int(sum), exponent = (bits >> 23) - 127;
  const float fraction = __int_as_float(bits - (exponent << 23));  // 1 to 2
  return static_cast<float>((static_cast<double>(most) + exponent) * CUDART_LN2 + logf(fraction));
}

/// Puts the results of the cluster together, always in the same order: four lanes have two columns of a head.
template <class S>
__device__ void merge_results(const decode_attention_call& s, int span, std::int64_t row, std::int64_t kv_head,
                              const typename S::memory& shared) {
  constexpr int pairs = S::d / 2, lanes = 4, most_spans = 1 << S::most_places;
  const attend_call& c = s.attend;
  const head_owner owner(s);
  const int part = threadIdx.x % lanes;
#pragma unroll 1
  for (int i = threadIdx.x / lanes;; i += S::threads / lanes) {
    const int head = span + (i / pairs << owner.places), column = i % pairs * 2;
    if (head >= c.group) break;
    const auto* const results = shared.results + owner.place(head, 0);
    float most = -CUDART_INF_F, sum = 0;
#pragma unroll
    for (int other = 0; other < most_spans; other += lanes)
      if (other + part < owner.spans) most = fmaxf(most, results[other + part].most);
    most = cuda::row_maximum(most);
    const float reference = cuda::reference_score(most);
    float2 out{};
#pragma unroll
    for (int other = 0; other < most_spans; other += lanes) {
      if (other + part >= owner.spans) continue;
      const auto& from = results[other + part];
      const float factor = cuda::exp2_approximately(from.most - reference);
      const float2 values = *reinterpret_cast<const float2*>(&from.out[column]);
      sum = __fmaf_rn(over_warps(from.sums, [](float a, float b) { return a + b; }), factor, sum);
      out.x = __fmaf_rn(values.x, factor, out.x);
      out.y = __fmaf_rn(values.y, factor, out.y);
    }
    out = {cuda::row_sum(out.x), cuda::row_sum(out.y)};
    sum = cuda::row_sum(sum);
    if (part != 0) continue;
    cuda::token_tile tile{};
    tile.first = row;
    const cuda::row_output to(c, tile, kv_head, head);
    to.pair(c, column, out.x, out.y, cuda::inverse_sum(sum));
    if (column == 0 && c.lse != nullptr)
      c.lse[to.row * c.lse_row_stride + to.head * c.lse_head_stride] = log_sum(most, sum);
  }
}

/// Until the scores of a row are there. The last sequence waits for the end of the kernel that scores, which takes less
/// time than to be told, and whatever follows this kernel must not begin before.
__device__ inline void wait_for_scores(const decode_attention_call& s, const row_place& place) {
  const lengths& rows = s.attend.rows;
  const auto sequence = static_cast<int>(place.sequence);
  if (s.done == nullptr || rows.cu_seqlens_q[sequence + 1] == rows.cu_seqlens_q[rows.batch])
    return cuda::wait_for_previous();
  const std::int64_t most_keys = s.select.max_blocks * decode_block;
  const auto blocks = static_cast<std::uint32_t>(
      cuda::ceil_div(max(std::int64_t{0}, min(place.length, most_keys)), std::int64_t{decode_block}));
  if (threadIdx.x == 0)
    while (read_count(s.done + sequence) < blocks) __nanosleep(100);
  __syncthreads();
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

  if (threadIdx.x == 0) {
    make_barrier(&shared.all_sent, 1);
    publish_barriers();
    arrive_expecting(&shared.all_sent, owner.heads(span, c.group) * owner.spans * S::result_bytes);
  }
  __syncwarp();
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
    if (c.values.block_table != c.keys.block_table) prefetch_table(c.values, place.sequence, limit);
  }
  cuda::wait_copies<0>();
  end_meeting();
  if (!there) {  // and the whole cluster
    cuda::wait_for_previous();
    return;
  }

  cuda::attention_rows<1, 2> total;  // 16 columns
  // Most of the time from the last score to the output would be spent on fetching instructions, each of which is needed
  // once. So all of it is done with some block before, for nothing.
#pragma unroll 1
  for (bool rehearses = s.rehearses;; rehearses = false) {
    if (!rehearses) wait_for_scores(s, place);
    const std::int64_t visible = visible_blocks(place, decode_block);
    const select_call& from = s.select;
    const std::int64_t scored = min(min(visible, from.max_blocks), rehearses ? std::int64_t{S::threads} : visible);
    if (from.scores != nullptr)
      shared.selection.rank(from.rule, scored,
                            from.scores + kv_head * from.score_head_stride + row * from.score_row_stride,
                            from.max_blocks, reinterpret_cast<float*>(tiles));
    else
      shared.selection.list(c.ids + row * c.id_row_stride + kv_head * c.id_head_stride, c.topk, visible);
    const int count = shared.selection.take(
        [&](int taken) {
          const int block = rehearses ? 0 : taken;
          const block_origin key(c.keys, place.sequence, block), value(c.values, place.sequence, block);
          typename S::place found{c.keys.data + key.element(c.keys, c.keys, kv_head) * S::element_bytes,
                                  c.values.data + value.element(c.values, c.values, kv_head) * S::element_bytes};
          if constexpr (S::is_e4m3) {
            found.key_scales = c.keys.scale.data + key.element(c.keys, c.keys.scale, kv_head);
            found.value_scales = c.values.scale.data + value.element(c.values, c.values.scale, kv_head);
          }
          return found;
        },
        [&](int slot, int block, const typename S::place& where) {
          shared.blocks[slot] = rehearses ? 0 : block;
          shared.places[slot] = where;
        });
    const std::int32_t* const blocks = shared.blocks;
    const int share = (count + owner.spans - 1) >> owner.places, first = span * share, last = min(first + share, count);

    uint4 keys[S::pieces / 4][2];
    float key_scales[2][2] = {}, value_scales[2][2] = {};  // of e4m3: of keys 2t, 2t + 1 and 8 further on
    uint4 held[S::keys * S::pieces / S::threads];          // values, likewise
    const auto load_scales = [&](int slot, const float* from, std::int64_t stride, float(&scales)[2][2]) {
      const std::uint32_t most = limit - 1 - blocks[slot] * S::keys;
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          scales[n][i] = from[min(static_cast<std::uint32_t>(warp * S::warp_keys + n * 8 + 2 * t + i), most) * stride];
    };
    const auto load_keys = [&](int slot) {
      const std::uint32_t most = limit - 1 - blocks[slot] * S::keys;
      const char* const from = shared.places[slot].keys + t * 16;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        // Past the last key that the token sees, that one: others may hold anything, or not be there.
        const std::uint32_t key = min(static_cast<std::uint32_t>(warp * S::warp_keys + n * 8 + g), most);
        const char* const of_key = from + key * c.keys.token_stride * S::element_bytes;
#pragma unroll
        for (int j = 0; j < S::pieces / 4; ++j) keys[j][n] = load_once(of_key + j * 64);
      }
      if (S::is_e4m3 && c.keys.scale.data != nullptr)
        load_scales(slot, shared.places[slot].key_scales, c.keys.scale.token_stride, key_scales);
    };
    // Values of 16 bits go to shared memory as they are, in turn to two tiles; of 8 bits through registers.
    constexpr int rows_at_once = S::threads / S::pieces;
    const std::uint32_t own = threadIdx.x / S::pieces, piece = threadIdx.x % S::pieces;
    const auto start_values = [&](int slot) {
      const std::uint32_t sees = limit - blocks[slot] * S::keys;
      const std::int64_t stride = c.values.token_stride * S::element_bytes;
      const char* from = shared.places[slot].values + own * stride + piece * 16;
      const std::uint32_t to =
          cuda::shared_address(tiles + (slot - first) % 2 * S::tile_elements + own * S::stride + piece * 8);
#pragma unroll
      for (int i = 0; i < S::keys / rows_at_once; ++i, from += rows_at_once * stride) {
        const bool there = own + i * rows_at_once < sees;
        if constexpr (S::is_e4m3)
          held[i] = there ? load_once(from) : uint4{};
        else
          cuda::copy_async(to + i * rows_at_once * S::stride * 2, from, there);
      }
      if (S::is_e4m3 && c.values.scale.data != nullptr)
        load_scales(slot, shared.places[slot].value_scales, c.values.scale.token_stride, value_scales);
    };
    const auto store_values = [&] {
      T* to = tiles + own * S::stride + piece * 16;
#pragma unroll
      for (int i = 0; i < S::keys / rows_at_once; ++i, to += rows_at_once * S::stride) {
        reinterpret_cast<uint4*>(to)[0] = widen<T>(held[i].x, held[i].y);
        reinterpret_cast<uint4*>(to)[1] = widen<T>(held[i].z, held[i].w);
      }
    };

    if (first < last) {
      load_keys(first);
      start_values(first);
    }
    cuda::commit_copies();
    if (!S::is_e4m3 && first + 1 < last) start_values(first + 1);
    cuda::commit_copies();
    if (from.ids != nullptr && span == 0 && warp == 0 && !rehearses)
      shared.selection.write(from.rule, scored, from.ids + row * from.id_row_stride + kv_head * from.id_head_stride);

    cuda::query_operands queries[S::d / 32];
#pragma unroll
    for (int j = 0; j < S::d / 32; ++j) {
      // 16 values of e4m3 are as many pieces of a query as it takes to hold them.
      const int piece = S::is_e4m3 ? j / 2 * 8 + 2 * t + j % 2 : 4 * j + t;
      queries[j] = cuda::query_operands(shared.queries[cuda::placed<S::d / 8>(g, piece)],
                                        shared.queries[cuda::placed<S::d / 8>(g + 8, piece)]);
    }

    const float scale = c.scale * static_cast<float>(CUDART_L2E);
    const std::uint32_t weight_row = cuda::shared_address(shared.weights + lane % 16 * S::stride + lane / 16 * 8);
    total.clear();
    for (int slot = first; slot < last; ++slot) {
      float scores[2][4] = {};
#pragma unroll
      for (int j = 0; j < S::d / 32; ++j) {
        uint4 key[2];
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          if constexpr (S::is_e4m3) {
            const uint4& stored = keys[j / 2][n];
            key[n] = j % 2 == 0 ? widen<T>(stored.x, stored.y) : widen<T>(stored.z, stored.w);
          } else {
            key[n] = keys[j][n];
          }
        }
#pragma unroll
        for (int n = 0; n < 2; ++n) cuda::mma<T>(scores[n], queries[j].first, key[n].x, key[n].y);
#pragma unroll
        for (int n = 0; n < 2; ++n) cuda::mma<T>(scores[n], queries[j].second, key[n].z, key[n].w);
      }
      if (S::is_e4m3 && c.keys.scale.data != nullptr)
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) scores[n][i] *= key_scales[n][i % 2];
      if (slot + 1 < last) load_keys(slot + 1);

      const std::uint32_t key = blocks[slot] * S::keys + warp * S::warp_keys + 2 * t;
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
        if (!S::is_e4m3 && slot + 1 < last) start_values(slot + 1);
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
          if (S::is_e4m3 && c.values.scale.data != nullptr) {  // a weight of 0 stays one, whatever a hidden scale is
            low = low == 0 ? 0 : low * value_scales[n][0];
            high = high == 0 ? 0 : high * value_scales[n][1];
          }
          *reinterpret_cast<std::uint32_t*>(shared.weights + (g + 8 * half) * S::stride + warp * S::warp_keys + n * 8 +
                                            t * 2) = cuda::storage<T>::pack(low, high);
          total.out[0][n][2 * half] *= factor;
          total.out[0][n][2 * half + 1] *= factor;
        }
        total.sum[0][half] = __fmaf_rn(total.sum[0][half], factor, sum);
      }
      if constexpr (S::is_e4m3) {
        store_values();
        if (slot + 1 < last) start_values(slot + 1);
      }
      cuda::wait_copies<1>();
      __syncthreads();  // weights and values are there

      const std::uint32_t values =
          cuda::shared_address(tiles + (S::is_e4m3 ? 0 : (slot - first) % 2) * S::tile_elements +
                               lane % 16 * S::stride + lane / 16 * 8) +
          warp * S::warp_columns * 2;
#pragma unroll
      for (int k = 0; k < S::keys / 16; ++k) {
        std::uint32_t weights[1][4];
        cuda::load_matrices(weights[0], weight_row + k * 32);
        cuda::add_values<T>(weights, values + k * 16 * S::stride * 2, total);
      }
    }
    cuda::wait_copies<0>();
    if (!rehearses) break;
    __syncthreads();
  }

  send_results<S>(s, span, total, shared);
  wait_for(&shared.all_sent, 0);
  merge_results<S>(s, span, row, kv_head, shared);
}

}  // namespace msabench::cuda_sm90

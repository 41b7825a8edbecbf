// SPDX-License-Identifier: Apache-2.0
// What the two kernels of `attend` share: blocks of keys and values on their way to shared memory, and the arithmetic
// of a warpgroup on 64 rows, four tokens of 16 heads, and a block. Each warp has the rows of one token; heads past the
// group hold anything, and nobody looks at them.
#pragma once

#include <math_constants.h>

#include <cstdint>

#include "kernels/cuda/attention_output.cuh"
#include "kernels/cuda_sm90/barriers.cuh"
#include "kernels/cuda_sm90/cache_policy.cuh"
#include "kernels/cuda_sm90/shared_layout.h"
#include "kernels/cuda_sm90/tensor_map.h"
#include "kernels/cuda_sm90/wgmma.cuh"

namespace msabench::cuda_sm90 {

using namespace msabench::kernels;

inline constexpr int block_keys = 128, head_columns = 128, token_heads = 16;
/// 64 columns of a block, in rows of 128 bytes; and both halves.
inline constexpr std::uint32_t block_panel_bytes = block_keys * swizzle_row_bytes, block_bytes = 2 * block_panel_bytes;
/// The same of the 64 rows of a warpgroup.
inline constexpr int warpgroup_tokens = 4;
inline constexpr std::uint32_t token_panel_bytes = token_heads * swizzle_row_bytes;
inline constexpr std::uint32_t query_panel_bytes = warpgroup_tokens * token_panel_bytes,
                               query_bytes = 2 * query_panel_bytes;
inline constexpr int k_steps = head_columns / 16, key_steps = block_keys / 16;

/// Queries, keys and values as the copy engine sees them.
struct attend_maps {
  CUtensorMap q, k, v;
  /// Rows of keys that are in one page wherever a block begins: boxes of so many.
  std::int32_t rows_of_box;
};

/// False: map_error says why.
bool make_attend_maps(attend_maps& maps, const attend_call& call);

/// A block of a sequence, for the warp that copies it. Lane i has the box of rows i * rows_of_box and on.
struct block_source {
  std::uint32_t sequence, number;
  std::int32_t keys;       ///< that the sequence has, at most 128
  std::int32_t row, page;  ///< of this lane's box

  block_source() = default;
  __device__ block_source(const attend_call& call, std::int32_t rows_of_box, std::uint32_t of, std::uint32_t block)
      : sequence(of), number(block), row(0), page(0) {
    const std::int32_t lane = threadIdx.x % 32, first = lane * rows_of_box;
    const std::int64_t position = std::int64_t{block} * block_keys + first;
    keys = static_cast<std::int32_t>(
        min(call.rows.kv_lens[sequence] - std::int64_t{block} * block_keys, std::int64_t{block_keys}));
    if (first >= block_keys || keys < block_keys) return;
    if (call.keys.block_table == nullptr) {
      row = static_cast<std::int32_t>(call.keys.cu_seqlens_kv[sequence] + position);
    } else {
      const auto page_size = static_cast<std::uint32_t>(call.keys.page_size), at = static_cast<std::uint32_t>(position);
      page = call.keys.block_table[sequence * call.keys.table_stride + at / page_size];
      row = static_cast<std::int32_t>(at % page_size);
    }
  }
};

/// Starts the copy of a whole block of keys or values.
__device__ inline void copy_block(const block_source& from, const CUtensorMap& map, std::int32_t rows_of_box,
                                  std::int32_t head, unsigned char* to, barrier* ready, cache_policy policy) {
  const std::int32_t lane = threadIdx.x % 32, first = lane * rows_of_box;
  if (lane == 0) arrive_expecting(ready, block_bytes);
  __syncwarp();
  if (first >= block_keys) return;
  to += first * swizzle_row_bytes;
  copy_box(to, map, {0, from.row, head, from.page}, ready, policy);
  copy_box(to + block_panel_bytes, map, {64, from.row, head, from.page}, ready, policy);
}

/// Copies the last block of a sequence, which is not whole: zeros for what is behind the end, where anything may lie,
/// or nothing that can be read.
__device__ inline void copy_last_block(const block_source& from, const cache& cached, std::int32_t head,
                                       unsigned char* to) {
  constexpr int pieces = head_columns / 8;
  const std::uint32_t base = cuda::shared_address(to);
  for (std::uint32_t i = threadIdx.x % 32; i < block_keys * pieces; i += 32) {
    const std::uint32_t row = i / pieces, piece = i % pieces;
    const bool there = row < static_cast<std::uint32_t>(from.keys);
    const char* const address =
        there ? cuda::key_address(cached, from.sequence, head, from.number * block_keys + row) + piece * 16
              : cached.data;
    cuda::copy_async(base + piece / 8 * block_panel_bytes + swizzled(row, piece % 8 * 16), address, there);
  }
}

/// Brings the keys or values of a block, by one warp.
__device__ inline void bring_block(const block_source& from, const cache& cached, const CUtensorMap& map,
                                   std::int32_t rows_of_box, std::int32_t head, unsigned char* to, barrier* ready,
                                   cache_policy policy) {
  if (from.keys == block_keys) {
    copy_block(from, map, rows_of_box, head, to, ready, policy);
    return;
  }
  copy_last_block(from, cached, head, to);
  cuda::commit_copies();
  cuda::wait_copies<0>();
  fence_for_async();
  __syncwarp();
  if (threadIdx.x % 32 == 0) arrive(ready);
}

/// Starts the copy of the queries of a token, place `token` of the four of a warpgroup: this lane's.
__device__ inline void copy_token(const attend_maps& maps, std::int32_t group, std::int32_t head, std::uint32_t row,
                                  int token, unsigned char* to, barrier* ready, cache_policy policy) {
  to += token * token_panel_bytes;
  copy_box(to, maps.q, {0, head * group, static_cast<std::int32_t>(row)}, ready, policy);
  copy_box(to + query_panel_bytes, maps.q, {64, head * group, static_cast<std::int32_t>(row)}, ready, policy);
}
constexpr std::uint32_t token_bytes(std::int32_t group) { return group * head_columns * 2; }

/// Enqueues scores = queries * keys^T.
template <class T>
__device__ void score_block(float (&scores)[64], std::uint64_t queries, std::uint64_t keys) {
#pragma unroll
  for (int k = 0; k < k_steps; ++k)
    multiply<T, block_keys>(scores, queries + k / 4 * (query_panel_bytes >> 4) + k % 4 * k_major_step,
                            keys + k / 4 * (block_panel_bytes >> 4) + k % 4 * k_major_step, k > 0);
}

/// Enqueues out = weights * values, or out += ...
template <class T>
__device__ void weigh_block(float (&out)[64], const std::uint32_t (&weights)[key_steps][4], std::uint64_t values,
                            bool adds) {
#pragma unroll
  for (int k = 0; k < key_steps; ++k)
    multiply<T, head_columns, major::mn>(out, weights[k], values + k * mn_major_step, k > 0 || adds);
}

/// Scores of keys from `keys` on become -infinity.
__device__ inline void hide_keys(float (&scores)[64], int keys) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < 64; ++i)
    if (i / 4 * 8 + t * 2 + i % 2 >= keys) scores[i] = -CUDART_INF_F;
}

/// Of rows g (half 0) and g + 8 (half 1) of a warp, over the four lanes that have them.
__device__ inline float greatest_of_row(const float (&scores)[64], int half) {
  float most[4] = {-CUDART_INF_F, -CUDART_INF_F, -CUDART_INF_F, -CUDART_INF_F};  // chains of their own
#pragma unroll
  for (int n = 0; n < 16; ++n)
    most[n % 4] = fmaxf(most[n % 4], fmaxf(scores[n * 4 + half * 2], scores[n * 4 + half * 2 + 1]));
  return cuda::row_maximum(fmaxf(fmaxf(most[0], most[1]), fmaxf(most[2], most[3])));
}

/// From scores to weights exp2(scale * score - reference), which stay unrounded there; returns this lane's sum.
__device__ inline float weigh_row(float (&scores)[64], int half, float scale, float reference) {
  float sum[2] = {0, 0};
#pragma unroll
  for (int n = 0; n < 16; ++n)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float& x = scores[n * 4 + half * 2 + i];
      x = cuda::exp2_approximately(__fmaf_rn(x, scale, -reference));
      sum[n % 2] += x;
    }
  return sum[0] + sum[1];
}

/// Weights as left operands of weigh_block. Rounds them.
template <class T>
__device__ void pack_weights(const float (&scores)[64], std::uint32_t (&weights)[key_steps][4]) {
#pragma unroll
  for (int k = 0; k < key_steps; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      weights[k][i] = cuda::storage<T>::pack(scores[k * 8 + i * 2], scores[k * 8 + i * 2 + 1]);
}

/// Word w of lane t of four becomes word t of lane w.
__device__ inline void transpose_words(std::uint32_t (&words)[4]) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int distance = 1; distance <= 2; distance *= 2)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & distance) continue;
      const bool upper = t & distance;
      const std::uint32_t got = __shfl_xor_sync(~0u, upper ? words[i] : words[i + distance], distance);
      words[i] = upper ? got : words[i];
      words[i + distance] = upper ? words[i + distance] : got;
    }
}

/// Output of a token: rows g and g + 8 of this warp, each times its factor. All lanes take part.
template <class T>
__device__ void write_token(const attend_call& call, std::int64_t row, std::int64_t head, const float (&out)[64],
                            const float (&factors)[2]) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = g + half * 8;
    char* const to = call.out + (row * call.out_row_stride + (head * call.group + r) * call.out_head_stride) * 2;
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      std::uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int n = part * 4 + i;
        words[i] =
            cuda::storage<T>::pack(out[n * 4 + half * 2] * factors[half], out[n * 4 + half * 2 + 1] * factors[half]);
      }
      transpose_words(words);
      if (r < call.group)
        *reinterpret_cast<uint4*>(to + (part * 4 + t) * 16) = uint4{words[0], words[1], words[2], words[3]};
    }
  }
}

/// Where the log-sum-exp of row r of a token goes.
__device__ inline void write_lse(const attend_call& call, std::int64_t row, std::int64_t head, int r, float most,
                                 float sum) {
  cuda::token_tile own{};
  own.first = row;
  cuda::row_output(call, own, head, r).lse(call, most, sum);
}

}  // namespace msabench::cuda_sm90

// SPDX-License-Identifier: Apache-2.0
// The arithmetic of attention on tiles in shared memory: a warp, its rows of queries, and a tile of keys or values.
//
// A row is a query head of a token. Of the keys that it has seen it has the greatest score, the sum of
// exp2(score - greatest), and the sum of these weights times the values. Scores are in units of log 2.
#pragma once

#include <math_constants.h>

#include <cstdint>

#include "kernels/cuda/mma.cuh"

namespace msabench::cuda {

/// Tiles of so many keys that `warps` warps of 16 * m_tiles rows each share.
template <class T, int columns_, int warps_, int m_tiles_, int tile_keys_>
struct attention_shape {
  using value = T;
  static constexpr int columns = columns_;  ///< d, or more: those past d are 0
  static constexpr int octets = columns / 8;
  static constexpr int warps = warps_, threads = 32 * warps;
  static constexpr int m_tiles = m_tiles_, rows = 16 * m_tiles * warps;
  static constexpr int tile_keys = tile_keys_, keys_per_warp = tile_keys / warps;
  /// Rows of a tile are 16 bytes further apart than they are long, so the eight of an ldmatrix meet all banks.
  static constexpr int stride = columns + 8;
  static constexpr int tile_elements = tile_keys * stride, query_elements = rows * stride;
  static constexpr bool queries_in_registers = m_tiles == 1;

  static_assert(columns % 16 == 0 && tile_keys % 16 == 0 && keys_per_warp <= 32);
  static_assert(keys_per_warp * octets % 32 == 0, "all lanes of a warp copy, or none");
};

__device__ inline float exp2_approximately(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// What is subtracted from scores: of a row that has seen no key, nothing.
__device__ inline float reference_score(float most) { return most == -CUDART_INF_F ? 0.0f : most; }

/// From a score to its weight, which it returns as well. Rounded apart from the scale of the score in every kernel.
__device__ inline float weigh(float& score, float most) {
  score = exp2_approximately(__fsub_rn(score, reference_score(most)));
  return score;
}

/// Adds the result of other keys to that of a row. The roundings are explicit, so that the same results merged in the same
/// order have the same bits in every kernel.
struct merge_factors {
  float most, own, other;
  __device__ merge_factors(float own_most, float other_most) : most(fmaxf(own_most, other_most)) {
    own = exp2_approximately(own_most - reference_score(most));
    other = exp2_approximately(other_most - reference_score(most));
  }
  __device__ float operator()(float x, float y) const { return __fmaf_rn(x, own, __fmul_rn(y, other)); }
};

/// Over the four lanes that have a row.
__device__ inline float row_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}
__device__ inline float row_maximum(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

/// In each lane: rows g and g + 8 of m tiles, and octets of columns, laid out as fragment C.
template <int m_tiles, int octets>
struct attention_rows {
  float out[m_tiles][octets][4];
  float most[m_tiles][2], sum[m_tiles][2];

  __device__ void clear() {
#pragma unroll
    for (int m = 0; m < m_tiles; ++m) {
#pragma unroll
      for (int n = 0; n < octets; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) out[m][n][i] = 0;
      most[m][0] = most[m][1] = -CUDART_INF_F;
      sum[m][0] = sum[m][1] = 0;
    }
  }

  __device__ void merge(const attention_rows& other) {
#pragma unroll
    for (int m = 0; m < m_tiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const merge_factors factors(most[m][half], other.most[m][half]);
        most[m][half] = factors.most;
        sum[m][half] = factors(sum[m][half], other.sum[m][half]);
#pragma unroll
        for (int n = 0; n < octets; ++n)
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) out[m][n][i] = factors(out[m][n][i], other.out[m][n][i]);
      }
  }
};

/// Of a tile, in fragments C.
template <class S>
struct attention_scores {
  float values[S::m_tiles][S::tile_keys / 8][4];
};

/// Fragments A of the rows of a warp: of one m tile in registers, of more read where they are needed.
template <class S>
struct query_fragments {
  std::uint32_t kept[S::queries_in_registers ? S::columns / 16 : 1][4];
  std::uint32_t address;  ///< of this lane's row of the first m tile

  query_fragments() = default;
  /// `rows`: of this warp, in shared memory.
  __device__ explicit query_fragments(const typename S::value* rows) {
    const int lane = threadIdx.x % 32;
    address = shared_address(rows + lane % 16 * S::stride + lane / 16 * 8);
    if constexpr (S::queries_in_registers)
#pragma unroll
      for (int k = 0; k < S::columns / 16; ++k) load_matrices(kept[k], address + k * 32);
  }
  __device__ void get(int m, int k, std::uint32_t (&a)[4]) const {
    if constexpr (S::queries_in_registers) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = kept[k][i];
    } else {
      load_matrices(a, address + m * 16 * S::stride * 2 + k * 32);
    }
  }
};

/// scores = queries * keys^T
template <class S>
__device__ void score_tile(const query_fragments<S>& queries, const typename S::value* keys,
                           attention_scores<S>& scores) {
  const int lane = threadIdx.x % 32;
  // Two octets of keys, each as rows 0-7 and 8-15 of B.
  const std::uint32_t address = shared_address(keys + (lane / 16 * 8 + lane % 8) * S::stride + lane / 8 % 2 * 8);
#pragma unroll
  for (int m = 0; m < S::m_tiles; ++m)
#pragma unroll
    for (int n = 0; n < S::tile_keys / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) scores.values[m][n][i] = 0;
#pragma unroll
  for (int k = 0; k < S::columns / 16; ++k) {
    std::uint32_t a[S::m_tiles][4];
#pragma unroll
    for (int m = 0; m < S::m_tiles; ++m) queries.get(m, k, a[m]);
#pragma unroll
    for (int n = 0; n < S::tile_keys / 8; n += 2) {
      std::uint32_t b[4];
      load_matrices(b, address + n * 8 * S::stride * 2 + k * 32);
#pragma unroll
      for (int m = 0; m < S::m_tiles; ++m) {
        mma<typename S::value>(scores.values[m][n], a[m], b[0], b[1]);
        mma<typename S::value>(scores.values[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

template <class S>
__device__ void scale_tile(float factor, attention_scores<S>& scores) {
#pragma unroll
  for (int m = 0; m < S::m_tiles; ++m)
#pragma unroll
    for (int n = 0; n < S::tile_keys / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) scores.values[m][n][i] = __fmul_rn(scores.values[m][n][i], factor);
}

/// Weights of 16 keys, number k of the tile, as fragment A of m tile m. Rounds them.
template <class S>
__device__ void weight_fragment(const attention_scores<S>& weights, int m, int k, std::uint32_t (&a)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float(&from)[4] = weights.values[m][2 * k + i / 2];
    a[i] = storage<typename S::value>::pack(from[i % 2 * 2], from[i % 2 * 2 + 1]);
  }
}

/// This lane's address in the first 16 rows of a tile of values, for add_values.
template <class S>
__device__ std::uint32_t value_address(const typename S::value* values) {
  const int lane = threadIdx.x % 32;
  return shared_address(values + lane % 16 * S::stride + lane / 16 * 8);
}

/// out += weights * values, of 16 keys and some octets of columns.
template <class T, int m_tiles, int octets>
__device__ void add_values(const std::uint32_t (&weights)[m_tiles][4], std::uint32_t address,
                           attention_rows<m_tiles, octets>& rows) {
#pragma unroll
  for (int n = 0; n < octets; n += 2) {
    std::uint32_t b[4];
    load_matrices_transposed(b, address + n * 16);
#pragma unroll
    for (int m = 0; m < m_tiles; ++m) {
      mma<T>(rows.out[m][n], weights[m], b[0], b[1]);
      mma<T>(rows.out[m][n + 1], weights[m], b[2], b[3]);
    }
  }
}

}  // namespace msabench::cuda

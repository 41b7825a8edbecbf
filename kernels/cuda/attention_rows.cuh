// SPDX-License-Identifier: Apache-2.0
// The arithmetic of attention on tiles in shared memory: a warp, its rows of queries, and a tile of keys or values.
//
// A row is a query head of a token. Softmax is taken online: of the keys seen so far a row has their greatest score,
// the sum of exp2(score - greatest) and the sum of these weights times the values. Scores are in units of log 2.
#pragma once

#include <math_constants.h>

#include <cstdint>

#include "kernels/cuda/mma.cuh"

namespace msabench::cuda {

/// A thread block: `warps` warps of 16 * m_tiles rows each, which share tiles of so many keys.
template <class T, int columns_, int warps_, int m_tiles_, int tile_keys_>
struct attention_shape {
  using value = T;
  static constexpr int columns = columns_;  ///< d, or more: those past d are 0
  static constexpr int warps = warps_, threads = 32 * warps;
  static constexpr int m_tiles = m_tiles_, rows = 16 * m_tiles * warps;
  static constexpr int tile_keys = tile_keys_, keys_per_warp = tile_keys / warps;
  /// Rows of a tile are 16 bytes further apart than they are long, so the eight of an ldmatrix meet all banks.
  static constexpr int stride = columns + 8;
  /// Tiles of keys and tiles of values take turns in a ring.
  static constexpr int stages = 3;
  static constexpr int tile_elements = tile_keys * stride, query_elements = rows * stride;
  /// One fragment a step fits into registers, and the queries then leave their place to the ring.
  static constexpr bool queries_in_registers = m_tiles == 1;
  /// Rows of one warp are summed in parts of so many keys, wherever the keys of another thread block begin.
  static constexpr int part_keys = 128;
  static constexpr bool in_parts = m_tiles == 1;
  static constexpr int shared_bytes =
      static_cast<int>(sizeof(T)) * (stages * tile_elements + (queries_in_registers ? 0 : query_elements));

  static_assert(columns % 16 == 0 && tile_keys % 16 == 0 && keys_per_warp <= 32 && part_keys % tile_keys == 0);
  static_assert(keys_per_warp * (columns / 8) % 32 == 0, "all lanes of a warp copy, or none");
};

__device__ inline float exp2_approximately(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// What is subtracted from scores: of a row that has seen no key, nothing.
__device__ inline float reference_score(float most) { return most == -CUDART_INF_F ? 0.0f : most; }

/// Adds the result of other keys to that of a row. Every order of the same calls gives the same bits on every path that
/// merges parts, hence the explicit roundings.
struct merge_factors {
  float most, own, other;
  __device__ merge_factors(float own_most, float other_most) : most(fmaxf(own_most, other_most)) {
    own = exp2_approximately(own_most - reference_score(most));
    other = exp2_approximately(other_most - reference_score(most));
  }
  __device__ float operator()(float x, float y) const { return __fmaf_rn(x, own, __fmul_rn(y, other)); }
};

/// In each lane: rows g and g + 8 of each m tile of its warp, laid out as fragment C.
template <class S>
struct attention_rows {
  float out[S::m_tiles][S::columns / 8][4];
  float most[S::m_tiles][2];
  float sum[S::m_tiles][2];  ///< over this lane's columns of the scores; of the row after gather_sums

  __device__ void clear() {
#pragma unroll
    for (int m = 0; m < S::m_tiles; ++m) {
#pragma unroll
      for (int n = 0; n < S::columns / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) out[m][n][i] = 0;
      most[m][0] = most[m][1] = -CUDART_INF_F;
      sum[m][0] = sum[m][1] = 0;
    }
  }

  __device__ void gather_sums() {
#pragma unroll
    for (int m = 0; m < S::m_tiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        sum[m][half] += __shfl_xor_sync(~0u, sum[m][half], 1);
        sum[m][half] += __shfl_xor_sync(~0u, sum[m][half], 2);
      }
  }

  /// `other`: after gather_sums, as this.
  __device__ void merge(const attention_rows& other) {
#pragma unroll
    for (int m = 0; m < S::m_tiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const merge_factors factors(most[m][half], other.most[m][half]);
        most[m][half] = factors.most;
        sum[m][half] = factors(sum[m][half], other.sum[m][half]);
#pragma unroll
        for (int n = 0; n < S::columns / 8; ++n)
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) out[m][n][i] = factors(out[m][n][i], other.out[m][n][i]);
      }
  }
};

template <class S>
struct attention_scores {
  float values[S::m_tiles][S::tile_keys / 8][4];  ///< fragments C
};

/// Fragments A of the rows of a warp.
template <class S>
struct query_fragments {
  std::uint32_t kept[S::queries_in_registers ? S::columns / 16 : 1][4];
  std::uint32_t address;  ///< of this lane's row of the first m tile

  /// `queries`: the rows of the thread block in shared memory.
  __device__ explicit query_fragments(const typename S::value* queries) {
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 * S::m_tiles + lane % 16;
    address = shared_address(queries + row * S::stride + lane / 16 * 8);
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

/// scores = scale * queries * keys^T
template <class S>
__device__ void score_tile(const query_fragments<S>& queries, const typename S::value* keys, float scale,
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
#pragma unroll
  for (int m = 0; m < S::m_tiles; ++m)
#pragma unroll
    for (int n = 0; n < S::tile_keys / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) scores.values[m][n][i] *= scale;
}

/// Scores to weights; what the rows hold so far is rescaled to the new greatest scores.
template <class S>
__device__ void weigh_tile(attention_scores<S>& scores, attention_rows<S>& rows) {
#pragma unroll
  for (int m = 0; m < S::m_tiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = rows.most[m][half];
#pragma unroll
      for (int n = 0; n < S::tile_keys / 8; ++n)
        most = fmaxf(most, fmaxf(scores.values[m][n][2 * half], scores.values[m][n][2 * half + 1]));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
      const float reference = reference_score(most);
      const float factor = exp2_approximately(rows.most[m][half] - reference);
      rows.most[m][half] = most;
      float sum = 0;
#pragma unroll
      for (int n = 0; n < S::tile_keys / 8; ++n)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          scores.values[m][n][i] = exp2_approximately(scores.values[m][n][i] - reference);
          sum += scores.values[m][n][i];
        }
      rows.sum[m][half] = rows.sum[m][half] * factor + sum;
      // Mostly the greatest score stays what it is, and so does everything else.
      if (__any_sync(~0u, factor != 1))
#pragma unroll
        for (int n = 0; n < S::columns / 8; ++n)
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) rows.out[m][n][i] *= factor;
    }
}

/// rows.out += weights * values. Weights are rounded here, after they were added to the sums.
template <class S>
__device__ void add_values(const attention_scores<S>& weights, const typename S::value* values,
                           attention_rows<S>& rows) {
  const int lane = threadIdx.x % 32;
  const std::uint32_t address = shared_address(values + lane % 16 * S::stride + lane / 16 * 8);
#pragma unroll
  for (int k = 0; k < S::tile_keys / 16; ++k) {
    std::uint32_t a[S::m_tiles][4];
#pragma unroll
    for (int m = 0; m < S::m_tiles; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float(&from)[4] = weights.values[m][2 * k + i / 2];
        a[m][i] = storage<typename S::value>::pack(from[i % 2 * 2], from[i % 2 * 2 + 1]);
      }
#pragma unroll
    for (int n = 0; n < S::columns / 8; n += 2) {
      std::uint32_t b[4];
      load_matrices_transposed(b, address + (k * 16 * S::stride + n * 8) * 2);
#pragma unroll
      for (int m = 0; m < S::m_tiles; ++m) {
        mma<typename S::value>(rows.out[m][n], a[m], b[0], b[1]);
        mma<typename S::value>(rows.out[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

}  // namespace msabench::cuda

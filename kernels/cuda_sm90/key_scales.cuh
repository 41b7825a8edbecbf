// SPDX-License-Identifier: Apache-2.0
// Scales of a tile of keys in shared memory, each key its own, and how a row's maximum is known not to matter before every
// product is multiplied by one.
#pragma once

#include <math_constants.h>

#include <cstdint>

#include "kernels/cuda_sm90/row_maxima.cuh"

namespace msabench::cuda_sm90 {

/// The products of a row that a thread holds are in groups of neighbours. Of each group its greatest scale is there too.
struct alignas(16) key_scales {
  static constexpr int of_thread = product_columns / 4;  ///< products of a row
  static constexpr int group = 5;                        ///< as two instructions find the maximum of five
  static constexpr int groups = (of_thread + group - 1) / group;
  static constexpr int chunks = (groups + 3) / 4;

  float of_column[product_columns];
  float4 greatest[chunks][4];  ///< groups 4i .. 4i + 3 of each thread of a quad

  /// By a warp; scales[i] of lane l is that of column 32i + l.
  __device__ void fill(const float (&scales)[product_columns / 32]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < product_columns / 32; ++i) of_column[32 * i + lane] = scales[i];
    __syncwarp();
#pragma unroll
    for (int i = lane; i < 4 * groups; i += 32) {
      const int thread = i % 4, number = i / 4;
      // Floats that are not negative are in order as integers, and a negative one is above all of them.
      std::uint32_t most = 0;
#pragma unroll
      for (int j = 0; j < group; ++j) {
        const int value = number * group + j;
        if (value < of_thread) most = max(most, __float_as_uint(of_column[8 * (value / 2) + 2 * thread + value % 2]));
      }
      constexpr std::uint32_t infinity = 0x7f800000u;
      // NaN says that there is no bound.
      reinterpret_cast<float*>(&greatest[number / 4][thread])[number % 4] =
          most > infinity ? CUDART_NAN_F : __uint_as_float(most);
    }
  }

  struct limits {
    float of_group[4 * chunks];
  };

  /// Of this thread.
  __device__ limits load_limits() const {
    limits l;
#pragma unroll
    for (int i = 0; i < chunks; ++i) {
      const float4 four = greatest[i][threadIdx.x % 4];
      l.of_group[4 * i] = four.x;
      l.of_group[4 * i + 1] = four.y;
      l.of_group[4 * i + 2] = four.z;
      l.of_group[4 * i + 3] = four.w;
    }
    return l;
  }

  /// What no scaled product of rows g and g + 8 is above, in all four threads of a quad: 0 or more, or NaN, which says
  /// nothing. Products are compared as in row_maxima, and what is negative becomes 0 in the end. Rounding keeps order, so
  /// the greatest product times the greatest scale, rounded, is no less than each product times its own.
  static __device__ void row_bounds(const float (&products)[product_values], const limits& l, float (&bounds)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto bits = [&](int value) { return __float_as_int(products[4 * (value / 2) + 2 * half + value % 2]); };
      int all = 0;
#pragma unroll
      for (int number = 0; number < groups; number += 2) {
        const auto of_group = [&](int n) {
          int most = bits(n * group);
#pragma unroll
          for (int j = 1; j < group; j += 2) {
            const int value = n * group + j;
            if (value + 1 < of_thread && j + 1 < group)
              most = __vimax3_s32(most, bits(value), bits(value + 1));
            else if (value < of_thread)
              most = max(most, bits(value));
          }
          return __float_as_int(__int_as_float(most) * l.of_group[n]);
        };
        if (number + 1 < groups)
          all = __vimax3_s32(all, of_group(number), of_group(number + 1));
        else
          all = max(all, of_group(number));
      }
      all = max(all, __shfl_xor_sync(cuda::all_lanes, all, 1));
      all = max(all, __shfl_xor_sync(cuda::all_lanes, all, 2));
      bounds[half] = __int_as_float(all);
    }
  }

  /// Each column times its scale.
  __device__ void multiply(float (&products)[product_values]) const {
    const auto* const pairs = reinterpret_cast<const float2*>(of_column) + threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < product_columns / 8; ++n) {
      const float2 pair = pairs[4 * n];
      products[4 * n] *= pair.x;
      products[4 * n + 1] *= pair.y;
      products[4 * n + 2] *= pair.x;
      products[4 * n + 3] *= pair.y;
      // Or all scales are read first, into registers that are not there.
      if (n % 4 == 3) asm volatile("" ::: "memory");
    }
  }
};

}  // namespace msabench::cuda_sm90

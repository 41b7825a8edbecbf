// SPDX-License-Identifier: Apache-2.0
// Row maxima of a product of 64 x 128 in the registers of a warpgroup (wgmma.cuh has the places).
#pragma once

#include <math_constants.h>

#include <cstdint>

#include "kernels/cuda/top_blocks.cuh"

namespace msabench::cuda_sm90 {

constexpr int product_columns = 128;
constexpr int product_values = product_columns / 2;  ///< of a thread: of rows g and g + 8, columns 8n + 2t, 8n + 2t + 1

/// Products of columns that a row does not see become -infinity; rows g and g + 8 see the first seen[0] and seen[1].
__device__ inline void hide_unseen(float (&products)[product_values], const int (&seen)[2]) {
  const int column = threadIdx.x % 4 * 2;
#pragma unroll
  for (int n = 0; n < product_columns / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (8 * n + column + i % 2 >= seen[i / 2]) products[4 * n + i] = -CUDART_INF_F;
}

/// By fmaxf, which passes NaN over; of nothing but NaN the maximum is -infinity.
__device__ inline float careful_row_maximum(const float (&products)[product_values], int half) {
  float most = -CUDART_INF_F;
#pragma unroll
  for (int n = 0; n < product_columns / 8; ++n)
    most = fmaxf(most, fmaxf(products[4 * n + 2 * half], products[4 * n + 2 * half + 1]));
  most = fmaxf(most, __shfl_xor_sync(cuda::all_lanes, most, 1));
  return fmaxf(most, __shfl_xor_sync(cuda::all_lanes, most, 2));
}

/// Maxima of rows g and g + 8, in all four threads of a quad, by whole warps; whether they are right.
///
/// Floats are compared as integers, of which one instruction takes three. That is right while the greatest is positive and
/// no NaN: negative numbers are negative as integers too, and every other one is in order. Positive NaNs come out on top as
/// more than infinity and negative numbers as negative; then the maximum has to be taken again, carefully.
__device__ inline bool quick_row_maxima(const float (&products)[product_values], float (&best)[2]) {
  constexpr std::uint32_t infinity = 0x7f800000u;
  const auto bits = [&](int n, int half, int i) { return __float_as_int(products[4 * n + 2 * half + i]); };
  bool are_right = true;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    // Two chains, as each link waits for the one before.
    int even = bits(0, half, 0), odd = bits(0, half, 1);
#pragma unroll
    for (int n = 1; n < product_columns / 8 - 1; n += 2) {
      even = __vimax3_s32(even, bits(n, half, 0), bits(n, half, 1));
      odd = __vimax3_s32(odd, bits(n + 1, half, 0), bits(n + 1, half, 1));
    }
    constexpr int last = product_columns / 8 - 1;
    int all = max(__vimax3_s32(even, bits(last, half, 0), bits(last, half, 1)), odd);
    all = max(all, __shfl_xor_sync(cuda::all_lanes, all, 1));
    all = max(all, __shfl_xor_sync(cuda::all_lanes, all, 2));
    are_right &= static_cast<std::uint32_t>(all) <= infinity;
    best[half] = __int_as_float(all);
  }
  return are_right;
}

}  // namespace msabench::cuda_sm90

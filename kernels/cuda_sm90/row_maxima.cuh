// SPDX-License-Identifier: Apache-2.0
// Row maxima of a product of 64 x 128 in the registers of a warpgroup (wgmma.cuh has the places).
#pragma once

#include <math_constants.h>

#include <cstdint>

#include "kernels/cuda/top_blocks.cuh"

namespace msabench::cuda_sm90 {

constexpr int product_columns = 128;
constexpr int product_values = product_columns / 2;  ///< of a thread: of rows g and g + 8, columns 8n + 2t, 8n + 2t + 1

/// Products of columns that a row does not see become `hidden`; rows g and g + 8 see the first seen[0] and seen[1].
__device__ inline void hide_unseen(float (&products)[product_values], const int (&seen)[2], float hidden) {
  const int column = threadIdx.x % 4 * 2;
#pragma unroll
  for (int n = 0; n < product_columns / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (8 * n + column + i % 2 >= seen[i / 2]) products[4 * n + i] = hidden;
}

/// Of value(n, i), which are a row's columns 8n + 2t + i, in all four threads of a quad; by whole warps.
///
/// Floats are compared as integers, of which one instruction takes three. That is right while the greatest is positive and
/// no NaN: negative numbers are negative as integers too, and every other one is in order. Positive NaNs come out on top as
/// more than infinity and negative numbers as negative: is_sound then says that it has to be taken again, carefully.
template <class Value>
__device__ float quick_row_maximum(const Value& value) {
  const auto bits = [&](int n, int i) { return __float_as_int(value(n, i)); };
  // Two chains, as each link waits for the one before.
  int even = bits(0, 0), odd = bits(0, 1);
#pragma unroll
  for (int n = 1; n < product_columns / 8 - 1; n += 2) {
    even = __vimax3_s32(even, bits(n, 0), bits(n, 1));
    odd = __vimax3_s32(odd, bits(n + 1, 0), bits(n + 1, 1));
  }
  constexpr int last = product_columns / 8 - 1;
  int all = max(__vimax3_s32(even, bits(last, 0), bits(last, 1)), odd);
  all = max(all, __shfl_xor_sync(cuda::all_lanes, all, 1));
  all = max(all, __shfl_xor_sync(cuda::all_lanes, all, 2));
  return __int_as_float(all);
}

__device__ inline bool is_sound(float quick_maximum) {
  constexpr std::uint32_t infinity = 0x7f800000u;
  return __float_as_uint(quick_maximum) <= infinity;
}

/// By fmaxf, which passes NaN over; of nothing but NaN the maximum is -infinity.
template <class Value>
__device__ float careful_row_maximum(const Value& value) {
  float most = -CUDART_INF_F;
#pragma unroll
  for (int n = 0; n < product_columns / 8; ++n) most = fmaxf(most, fmaxf(value(n, 0), value(n, 1)));
  most = fmaxf(most, __shfl_xor_sync(cuda::all_lanes, most, 1));
  return fmaxf(most, __shfl_xor_sync(cuda::all_lanes, most, 2));
}

/// The products of row g, or of g + 8 where half is 1.
struct row_products {
  const float (&all)[product_values];
  int half;

  __device__ float operator()(int n, int i) const { return all[4 * n + 2 * half + i]; }
};

}  // namespace msabench::cuda_sm90

// SPDX-License-Identifier: Apache-2.0
// What a token has of its blocks, added up by whoever has computed the next one: in ascending order of blocks, whichever
// thread blocks these are computed by. Between two blocks it waits in memory. A token's blocks are begun in their order,
// and whoever waits, waits for blocks that were begun before.
#pragma once

#include <cuda_fp16.h>
#include <math_constants.h>

#include <cstdint>

#include "kernels/cuda_sm90/attend_lists.cuh"
#include "kernels/cuda_sm90/attend_tiles.cuh"

namespace msabench::cuda_sm90 {

/// Makes the most of fp16: what is stored as x * multiplier is about 2^14 at its greatest. And the way back. Both are
/// powers of two.
struct row_scale {
  float multiplier, factor;

  __device__ explicit row_scale(float greatest) {
    // Exponents, so that both are normal numbers. What is infinite or NaN stays so.
    constexpr std::uint32_t aim = 14, bias = 127;
    const std::uint32_t exponent = min(max(__float_as_uint(greatest) >> 23, aim + 1), 2 * bias);
    multiplier = __uint_as_float((2 * bias + aim - exponent) << 23);
    factor = __uint_as_float((exponent - aim) << 23);
  }
};

/// Waits until a token has the blocks before this one.
__device__ inline void wait_for_blocks(const std::uint32_t* added, std::uint32_t blocks) {
  std::uint32_t seen = 0;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(added) : "memory");
  } while (seen < blocks);
}
/// By a warp that has written what it tells of.
__device__ inline void tell_blocks(std::uint32_t* added, std::uint32_t blocks) {
  __syncwarp();
  if (threadIdx.x % 32 != 0) return;
  __threadfence();
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(added), "r"(blocks) : "memory");
}

/// The sums of a token of the blocks before this one.
template <class T>
struct earlier_sums {
  using sums = token_sums<T>;
  uint4 out[2][sums::parts];
  float4 rows[2];

  __device__ void load(const sums& from) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int part = 0; part < sums::parts; ++part) out[half][part] = __ldcg(&from.out[half][part][lane]);
      rows[half] = __ldcg(&from.rows[half * 8 + lane / 4]);
    }
  }
  /// Pair n of a row.
  __device__ float2 values(int half, int n) const {
    if constexpr (sums::halves) {
      const uint4& four = out[half][n / 4];
      const std::uint32_t words[4] = {four.x, four.y, four.z, four.w};
      return __half22float2(reinterpret_cast<const __half2&>(words[n % 4]));
    } else {
      const uint4& four = out[half][n / 2];
      return n % 2 == 0 ? float2{__uint_as_float(four.x), __uint_as_float(four.y)}
                        : float2{__uint_as_float(four.z), __uint_as_float(four.w)};
    }
  }
};

/// Adds to weighted values of a block, whose weights have `most` as their greatest score and `sum`, those of the blocks
/// before. Values come out divided by the sum of all weights.
template <class T>
__device__ void add_earlier(float (&out)[64], float (&most)[2], float (&sum)[2], const earlier_sums<T>& earlier) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float4 before = earlier.rows[half];
    const float greatest = fmaxf(before.x, most[half]), reference = cuda::reference_score(greatest);
    const float old_sum = before.y * cuda::exp2_approximately(before.x - reference);
    const float factor = cuda::exp2_approximately(most[half] - reference);
    most[half] = greatest;
    sum[half] = __fmaf_rn(sum[half], factor, old_sum);
    const float inverse = cuda::inverse_sum(sum[half]);
    const float new_part = factor * inverse, old_part = old_sum * inverse * before.z;
#pragma unroll
    for (int n = 0; n < 16; ++n) {
      const float2 old = earlier.values(half, n);
      const int first = n * 4 + half * 2;
      out[first] = __fmaf_rn(out[first], new_part, old.x * old_part);
      out[first + 1] = __fmaf_rn(out[first + 1], new_part, old.y * old_part);
    }
  }
}

/// Divides weighted values of a first block by the sums of weights.
__device__ inline void divide(float (&out)[64], const float (&sum)[2]) {
  const float inverses[2] = {cuda::inverse_sum(sum[0]), cuda::inverse_sum(sum[1])};
#pragma unroll
  for (int i = 0; i < 64; ++i) out[i] *= inverses[i / 2 % 2];
}

template <class T>
__device__ void store_sums(token_sums<T>& to, const float (&out)[64], const float (&most)[2], const float (&sum)[2]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float factor = 1;
    if constexpr (token_sums<T>::halves) {
      float greatest = 0;
#pragma unroll
      for (int n = 0; n < 16; ++n)
        greatest = fmaxf(greatest, fmaxf(fabsf(out[n * 4 + half * 2]), fabsf(out[n * 4 + half * 2 + 1])));
      const row_scale scale(cuda::row_maximum(greatest));
      factor = scale.factor;
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        std::uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int first = (part * 4 + i) * 4 + half * 2;
          words[i] = cuda::storage<__half>::pack(out[first] * scale.multiplier, out[first + 1] * scale.multiplier);
        }
        __stcg(&to.out[half][part][lane], uint4{words[0], words[1], words[2], words[3]});
      }
    } else {
#pragma unroll
      for (int part = 0; part < 8; ++part) {
        const int first = part * 8 + half * 2;
        __stcg(&to.out[half][part][lane], uint4{__float_as_uint(out[first]), __float_as_uint(out[first + 1]),
                                                __float_as_uint(out[first + 4]), __float_as_uint(out[first + 5])});
      }
    }
    if (lane % 4 == 0) __stcg(&to.rows[half * 8 + lane / 4], float4{most[half], sum[half], factor, 0});
  }
}

}  // namespace msabench::cuda_sm90

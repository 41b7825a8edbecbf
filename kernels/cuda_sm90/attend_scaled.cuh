// SPDX-License-Identifier: Apache-2.0
// Keys and values in e4m3, which `attend` multiplies as bf16: that holds every one of them exactly. Warps read them,
// write them to shared memory as the copy engine writes those of 16 bits, and their scales beside them. A score is
// multiplied by the scale of its key, a weight by that of its value.
#pragma once

#include <cuda_fp8.h>

#include <cstdint>

#include "kernels/cuda_sm90/attend_tiles.cuh"

namespace msabench::cuda_sm90 {

template <class Stored>
inline constexpr bool is_scaled = sizeof(Stored) == 1;

/// Warps that bring a block together.
inline constexpr int converting_warps = 4;

/// Two values of e4m3 as two of bf16.
__device__ inline std::uint32_t widen_pair(std::uint32_t two) {
  const __half2 halves(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(two), __NV_E4M3));
  const float2 values = __half22float2(halves);
  return cuda::storage<__nv_bfloat16>::pack(values.x, values.y);
}

/// This warp's rows of the keys or values of a block: row i in lane i.
struct scaled_rows {
  static constexpr int count = block_keys / converting_warps;
  const char* address = nullptr;  ///< of none behind the end of the sequence: nothing is read there
  float factor = 0;

  __device__ scaled_rows(const attend_call& call, const cache& cached, std::uint32_t sequence, std::int32_t head,
                         std::uint32_t block) {
    const std::int64_t position = std::int64_t{block} * block_keys + threadIdx.x / 32 % 4 * count + threadIdx.x % 32;
    if (position >= call.rows.kv_lens[sequence]) return;
    address = cached.token(sequence, head, position);
    factor = cached.factor(sequence, head, position);
  }
};

/// Copies a block of keys or values, by all of the converting warps; zeros behind the end.
__device__ inline void widen_block(const scaled_rows& rows, unsigned char* to) {
  constexpr int pieces = head_columns / 16, at_once = 32 / pieces;
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, piece = lane % pieces;
  uint4 loaded[scaled_rows::count / at_once];
#pragma unroll
  for (int i = 0; i < scaled_rows::count / at_once; ++i) {
    const auto* const address = reinterpret_cast<const uint4*>(
        __shfl_sync(~0u, reinterpret_cast<unsigned long long>(rows.address), i * at_once + lane / pieces));
    loaded[i] = address != nullptr ? __ldcs(address + piece) : uint4{};
  }
  unsigned char* const panel = to + piece / 4 * block_panel_bytes;
#pragma unroll
  for (int i = 0; i < scaled_rows::count / at_once; ++i) {
    const std::uint32_t row = warp * scaled_rows::count + i * at_once + lane / pieces;
    const std::uint32_t words[4] = {loaded[i].x, loaded[i].y, loaded[i].z, loaded[i].w};
    uint4 wide[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      wide[half] = {widen_pair(words[half * 2] & 0xffff), widen_pair(words[half * 2] >> 16),
                    widen_pair(words[half * 2 + 1] & 0xffff), widen_pair(words[half * 2 + 1] >> 16)};
    // Lanes of the second panel begin with the other half, in other banks.
    const bool second = piece / 4 != 0;
    const std::uint32_t chunk = piece % 4 * 2;
    *reinterpret_cast<uint4*>(panel + swizzled(row, (chunk + (second ? 1 : 0)) * 16)) = second ? wide[1] : wide[0];
    *reinterpret_cast<uint4*>(panel + swizzled(row, (chunk + (second ? 0 : 1)) * 16)) = second ? wide[0] : wide[1];
  }
}

/// As widen_block, and the scales of these rows.
__device__ inline void widen_block(const scaled_rows& rows, unsigned char* to, float* scales) {
  scales[threadIdx.x % (converting_warps * scaled_rows::count)] = rows.factor;
  widen_block(rows, to);
}

/// What this warp widened is there: arrives once for each converting warp.
__device__ inline void finish_block(barrier* ready) {
  fence_for_async();
  __syncwarp();
  if (threadIdx.x % 32 == 0) arrive(ready);
}

/// Each column of scores or weights times its factor.
__device__ inline void scale_columns(float (&columns)[64], const float* factors) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int n = 0; n < 16; ++n) {
    const float2 two = *reinterpret_cast<const float2*>(factors + n * 8 + t * 2);
    columns[n * 4] *= two.x, columns[n * 4 + 1] *= two.y;
    columns[n * 4 + 2] *= two.x, columns[n * 4 + 3] *= two.y;
  }
}

}  // namespace msabench::cuda_sm90

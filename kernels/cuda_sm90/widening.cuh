// SPDX-License-Identifier: Apache-2.0
// e4m3 as operands of 16 bits, which hold all its values: products and sums are then what they are of such operands.
#pragma once

#include <cuda_fp8.h>

#include <type_traits>

#include "kernels/cuda/mma.cuh"

namespace msabench::cuda_sm90 {

template <class Stored>
inline constexpr bool is_e4m3 = std::is_same_v<Stored, __nv_fp8_e4m3>;

/// What stored values are multiplied as, where nothing else decides it.
template <class Stored>
using multiplied = std::conditional_t<is_e4m3<Stored>, __half, Stored>;

/// Eight values.
template <class T>
__device__ inline uint4 widen(std::uint32_t low, std::uint32_t high) {
  const auto pair = [](std::uint32_t two) {
    const __half2_raw halves = __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(two), __NV_E4M3);
    if constexpr (std::is_same_v<T, __half>) return std::uint32_t{halves.x} | std::uint32_t{halves.y} << 16;
    const float2 floats = __half22float2(halves);
    return cuda::storage<T>::pack(floats.x, floats.y);
  };
  return {pair(low & 0xffff), pair(low >> 16), pair(high & 0xffff), pair(high >> 16)};
}

}  // namespace msabench::cuda_sm90

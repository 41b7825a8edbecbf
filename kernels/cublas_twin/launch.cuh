// SPDX-License-Identifier: Apache-2.0
// Launching kernels that walk their items with a stride.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/cublas_twin/rounding.h"

namespace msabench::cublas_twin {

constexpr int warp = 32;

/// The maximum over nothing.
constexpr float no_score = -std::numeric_limits<float>::infinity();

/// Multiprocessors of the current device, which is the one that the host chose.
inline int multiprocessors() {
  static const int count = [] {
    int device = 0, found = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&found, cudaDevAttrMultiProcessorCount, device);
    return std::max(found, 1);
  }();
  return count;
}

/// Blocks of a grid for so many items: a few on each multiprocessor, or fewer where there are fewer items.
inline unsigned grid_blocks(std::int64_t items, std::int64_t items_per_block) {
  constexpr std::int64_t blocks_per_multiprocessor = 16;
  const std::int64_t most = multiprocessors() * blocks_per_multiprocessor;
  return static_cast<unsigned>(std::clamp<std::int64_t>(ceil_div(items, items_per_block), 1, most));
}

/// Kernels with one warp for each item.
constexpr int item_warps = 8;
__device__ inline std::int64_t first_item() { return std::int64_t{blockIdx.x} * item_warps + threadIdx.x / warp; }
__device__ inline std::int64_t item_step() { return std::int64_t{gridDim.x} * item_warps; }

}  // namespace msabench::cublas_twin

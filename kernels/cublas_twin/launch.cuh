// SPDX-License-Identifier: Apache-2.0
// Launching kernels on the units of a pass.
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

/// A column of blocks for each unit, each of which walks its share of the unit's items: enough of them to fill the
/// device a few times over, or fewer where there are fewer items.
inline dim3 unit_grid(std::int64_t units, std::int64_t items, std::int64_t items_per_block) {
  const std::int64_t wanted = ceil_div(multiprocessors() * std::int64_t{128}, units);
  const std::int64_t blocks = std::clamp<std::int64_t>(ceil_div(items, items_per_block), 1, wanted);
  return {static_cast<unsigned>(blocks), static_cast<unsigned>(units), 1};
}

/// Kernels with one warp for each item of a unit.
constexpr int item_warps = 8;
__device__ inline std::int64_t first_item() { return std::int64_t{blockIdx.x} * item_warps + threadIdx.x / warp; }
__device__ inline std::int64_t item_step() { return std::int64_t{gridDim.x} * item_warps; }

}  // namespace msabench::cublas_twin

// SPDX-License-Identifier: Apache-2.0
// Launching kernels: sizes, and what went wrong.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

namespace msabench::cuda {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Text of this thread's last failed launch, which it clears; nullptr: none failed.
inline const char* launch_error() {
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

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

/// Shared memory that a block of the current device can have.
inline std::size_t most_shared_memory() {
  static const std::size_t bytes = [] {
    int device = 0, found = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&found, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    return static_cast<std::size_t>(found);
  }();
  return bytes;
}

/// Blocks for `items`, which a kernel walks with a stride: the first axis of a grid has room for 2^31 of them, but more
/// than a few on each multiprocessor gain nothing.
inline unsigned grid_blocks(std::int64_t items, std::int64_t items_per_block, int blocks_per_multiprocessor = 8) {
  const std::int64_t most = std::int64_t{multiprocessors()} * blocks_per_multiprocessor;
  return static_cast<unsigned>(std::clamp<std::int64_t>(ceil_div(items, items_per_block), 1, most));
}

/// A kernel may take more than 48 KiB of shared memory only after it has been asked for.
template <class Kernel>
void allow_shared_memory(Kernel kernel, std::size_t bytes) {
  constexpr std::size_t without_asking = 48 * 1024;
  if (bytes > without_asking)
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
}

}  // namespace msabench::cuda

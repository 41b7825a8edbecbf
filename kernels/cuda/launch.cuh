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

/// An attribute of the current device.
inline int device_attribute(cudaDeviceAttr which) {
  int device = 0, found = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&found, which, device);
  return found;
}

/// Bytes of shared memory that a thread block can have on the current device.
inline std::size_t shared_memory_room() {
  return static_cast<std::size_t>(device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
}

/// Thread blocks of so many bytes of shared memory that fit on a multiprocessor.
inline int resident_blocks(std::size_t bytes) {
  const int reserved = device_attribute(cudaDevAttrReservedSharedMemoryPerBlock);
  const int all = device_attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  return std::max(1, all / (static_cast<int>(bytes) + reserved));
}

// A kernel that is launched to overlap may begin while the one before it still runs, from sm_90 on: when all thread
// blocks of that one have called let_next_begin or are done. What the kernel before wrote is there after
// wait_for_previous; what it reads may be read before.
__device__ inline void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ inline void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// A kernel may take more than 48 KiB of shared memory only after it has been asked for. That is a limit of the kernel, not
/// of a launch, and another thread may be about to launch the same kernel with more: whoever raises it asks for all there
/// is, and nobody lowers it.
template <class Kernel>
void allow_shared_memory(Kernel kernel, std::size_t bytes) {
  constexpr std::size_t without_asking = 48 * 1024;
  if (bytes <= without_asking) return;
  cudaFuncAttributes has{};
  cudaFuncGetAttributes(&has, kernel);
  if (bytes > static_cast<std::size_t>(has.maxDynamicSharedSizeBytes))
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(most_shared_memory() - has.sharedSizeBytes));
}

struct chained_launch {
  dim3 blocks;
  unsigned threads;
  std::size_t shared;
  cudaStream_t stream;
  bool overlaps;  ///< with the kernel before it, and so it calls wait_for_previous
};

/// As kernel<<<...>>>(arguments...), of kernels that may overlap.
template <class... Parameters, class... Arguments>
void launch_chained(void (*kernel)(Parameters...), const chained_launch& shape, const Arguments&... arguments) {
  allow_shared_memory(kernel, shape.shared);
  // A multiprocessor divides its memory anew only when it is idle, which would keep the next kernel's thread blocks out.
  cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  cudaLaunchAttribute overlaps{};
  overlaps.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlaps.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = shape.blocks;
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared;
  config.stream = shape.stream;
  config.attrs = &overlaps;
  config.numAttrs = shape.overlaps && device_attribute(cudaDevAttrComputeCapabilityMajor) >= 9 ? 1 : 0;
  cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace msabench::cuda

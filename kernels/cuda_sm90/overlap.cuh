// SPDX-License-Identifier: Apache-2.0
// Kernels that begin while the one before still ends.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

#include "kernels/cuda/launch.cuh"

namespace msabench::cuda_sm90 {

/// First of all in each thread of a kernel that launch_in_turn launches: all that was enqueued before is done after it,
/// so a thread block may not end without. The next kernel may then begin as soon as there is room for it.
///
/// What was enqueued before the last kernel is done from the start, as each of that one's thread blocks has been here. So
/// a thread that reads nothing else, and writes nothing that the last kernel reads, may come later or not at all.
__device__ inline void begin_in_turn() {
  cuda::wait_for_previous();
  cuda::let_next_begin();
}

/// As kernel<<<blocks, threads, shared, stream>>>(arguments...), for kernels that call begin_in_turn. What is enqueued
/// before has to be such a kernel, or one that ends before anything begins.
template <class... Parameters, class... Arguments>
void launch_in_turn(void (*kernel)(Parameters...), unsigned blocks, unsigned threads, std::size_t shared,
                    cudaStream_t stream, Arguments&&... arguments) {
  cudaLaunchAttribute overlaps{};
  overlaps.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlaps.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = &overlaps;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
}

}  // namespace msabench::cuda_sm90

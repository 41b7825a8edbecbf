// SPDX-License-Identifier: Apache-2.0
// The kernels of `attend` that go through the work of attend_lists.cuh.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda_sm90/attend_lists.cuh"
#include "kernels/cuda_sm90/attend_tiles.cuh"

namespace msabench::cuda_sm90 {

/// Enqueues the tiles of tokens that read their blocks together.
void attend_shared_tiles(const attend_call& call, const attend_maps& maps, const attend_chunk& chunk,
                         cudaStream_t stream);

/// Enqueues everything else, block by block, and the kernels that put the results of blocks together.
void attend_scattered_tokens(const attend_call& call, const attend_maps& maps, const attend_chunk& chunk,
                             cudaStream_t stream);

/// Enqueues the kernel that adds up, for each token, the results of the blocks of a pass.
void combine_scattered_tokens(const attend_call& call, const attend_chunk& chunk, attend_pass pass,
                              cudaStream_t stream);

}  // namespace msabench::cuda_sm90

// SPDX-License-Identifier: Apache-2.0
// Makes elements of one stream of the generator where they lie on a device. The worker is built without CUDA's
// toolkit, so the suite keeps what nvcc makes of this file, generate_inputs.ptx; after a change, run
// generate_inputs.py beside it.
#include "host/worker/generated_group.h"

namespace msabench {

// Groups of the stream from counter `first` on. One thread makes one group and writes it at once.
template <class Stored>
__device__ void generate(void* to, std::uint64_t groups, std::uint64_t first, std::uint64_t key, std::uint64_t seed,
                         const void* of_steps) {
  __shared__ Stored elements[normal_steps];
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < normal_steps; i += static_cast<int>(blockDim.x))
    elements[i] = static_cast<const Stored*>(of_steps)[i];
  __syncthreads();
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < groups; i += stride)
    static_cast<generated_group<Stored>*>(to)[i] = make_group(elements, key, seed, first + i);
}

}  // namespace msabench

using std::uint64_t;

extern "C" __global__ void generate_1(void* to, uint64_t groups, uint64_t first, uint64_t key, uint64_t seed,
                                      const void* of_steps) {
  msabench::generate<std::uint8_t>(to, groups, first, key, seed, of_steps);
}

extern "C" __global__ void generate_2(void* to, uint64_t groups, uint64_t first, uint64_t key, uint64_t seed,
                                      const void* of_steps) {
  msabench::generate<std::uint16_t>(to, groups, first, key, seed, of_steps);
}

extern "C" __global__ void generate_4(void* to, uint64_t groups, uint64_t first, uint64_t key, uint64_t seed,
                                      const void* of_steps) {
  msabench::generate<std::uint32_t>(to, groups, first, key, seed, of_steps);
}

// SPDX-License-Identifier: Apache-2.0
// Thread blocks of a cluster, and what they write into each other's shared memory.
#pragma once

#include <cstdint>

#include "kernels/cuda/mma.cuh"

namespace msabench::cuda_sm90 {

// Between the two, which all threads of a cluster call by whole warps, whoever has called the second knows that all
// have called the first, and sees what they wrote before it: they are there, or what they stored is.
__device__ inline void begin_meeting() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ inline void end_meeting() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

/// For store_in: the address, in the shared memory of thread block `rank`, of what lies here at `own`.
__device__ inline std::uint32_t address_in(int rank, const void* own) {
  std::uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(cuda::shared_address(own)), "r"(rank));
  return there;
}

/// Into the shared memory of a thread block of the cluster, which has to be there until the next meeting has begun.
__device__ inline void store_in(std::uint32_t to, float x) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(to), "f"(x) : "memory");
}
__device__ inline void store_in(std::uint32_t to, float x, float y) {
  asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(x), "f"(y) : "memory");
}

}  // namespace msabench::cuda_sm90

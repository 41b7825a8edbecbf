// SPDX-License-Identifier: Apache-2.0
// Thread blocks of a cluster, and what they write into each other's shared memory.
#pragma once

#include <cstdint>

#include "kernels/cuda/mma.cuh"
#include "kernels/cuda_sm90/barriers.cuh"

namespace msabench::cuda_sm90 {

// Between the two, which all threads of a cluster call by whole warps, whoever has called the second knows that all
// have called the first: they are there, and their barriers are, if they have been published.
__device__ inline void begin_meeting() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ inline void end_meeting() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

/// For send: the address, in the shared memory of thread block `rank`, of what lies here at `own`.
__device__ inline std::uint32_t address_in(int rank, const void* own) {
  std::uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(cuda::shared_address(own)), "r"(rank));
  return there;
}

/// Written some time later, and then told to the barrier of that thread block, as bytes of a copy are. That thread
/// block has to be there until they have come.
__device__ inline void send(std::uint32_t to, float x, std::uint32_t barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
               "r"(__float_as_uint(x)), "r"(barrier)
               : "memory");
}
__device__ inline void send(std::uint32_t to, float x, float y, std::uint32_t barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(to),
               "r"(__float_as_uint(x)), "r"(__float_as_uint(y)), "r"(barrier)
               : "memory");
}

}  // namespace msabench::cuda_sm90

// SPDX-License-Identifier: Apache-2.0
// Copies of bytes that lie one after the other, by the copy engine. Beside barriers.cuh, which has boxes of tensors.
#pragma once

#include <cstdint>

#include "kernels/cuda/mma.cuh"
#include "kernels/cuda_sm90/barriers.cuh"

namespace msabench::cuda_sm90 {

/// For data that is read once: what the second-level cache gives up first. To be had by every thread that copies so.
__device__ inline std::uint64_t read_once() {
  std::uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0;" : "=l"(policy));
  return policy;
}

/// Starts a copy from global to shared memory; all of it in multiples of 16 bytes. By one thread, the barrier having
/// been told of the bytes, or being told by a thread whose arrival it waits for.
__device__ inline void copy_bytes(void* to, const void* from, std::uint32_t bytes, barrier* b, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(cuda::shared_address(to)),
      "l"(from), "r"(bytes), "r"(cuda::shared_address(b)), "l"(policy)
      : "memory");
}

}  // namespace msabench::cuda_sm90

// SPDX-License-Identifier: Apache-2.0
// Barriers in shared memory, of sm_80: warps that produce and warps that consume wait for each other and for copies, not
// for everybody. A barrier is completed by `count` arrivals and then begins anew; waiters say which completion they mean
// by its parity, 0 for the first.
#pragma once

#include <cstdint>

#include "kernels/cuda/mma.cuh"

namespace msabench::cuda {

using barrier = std::uint64_t;

__device__ inline void make_barrier(barrier* b, int count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(count) : "memory");
}

__device__ inline void arrive(barrier* b) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(shared_address(b)) : "memory");
}

/// Arrives when all copies that this thread has started are done.
__device__ inline void arrive_after_copies(barrier* b) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(b)) : "memory");
}

/// Until the completion of that parity. Before the first one, the parity 1 counts as completed.
__device__ inline void wait_for(barrier* b, int parity) {
  asm volatile(
      "{ .reg .pred done;\n"
      "again: mbarrier.test_wait.parity.shared.b64 done, [%0], %1;\n"
      "@!done bra again; }" ::"r"(shared_address(b)),
      "r"(parity)
      : "memory");
}

}  // namespace msabench::cuda

// SPDX-License-Identifier: Apache-2.0
// Who waits for whom in shared memory, and the copy engine. A barrier is completed when `count` arrivals and all bytes that
// were announced have come, and then begins anew; waiters say which completion they mean by its parity, 0 for the first.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <cuda/ptx>

namespace msabench::cuda_sm90 {

namespace ptx = ::cuda::ptx;

using barrier = std::uint64_t;

/// By one thread; then publish_barriers by the same, and __syncthreads before anyone uses it.
__device__ inline void make_barrier(barrier* b, std::uint32_t count) { ptx::mbarrier_init(b, count); }
__device__ inline void publish_barriers() { ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster); }

__device__ inline void arrive(barrier* b) { ptx::mbarrier_arrive(b); }
/// Arrives, and announces bytes that copies will bring.
__device__ inline void arrive_expecting(barrier* b, std::uint32_t bytes) {
  ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, b, bytes);
}

/// Until the completion of that parity. Before the first one, the parity 1 counts as completed.
__device__ inline void wait_for(barrier* b, std::uint32_t parity) {
  while (!ptx::mbarrier_try_wait_parity(b, parity)) {
  }
}

/// By all lanes of a warp, of which the first announces the bytes. Where lanes hand over what they wrote or read themselves each
/// arrives: one could for all, after a meeting, but racecheck takes that for its own only.
__device__ inline void arrive_all_expecting(barrier* b, std::uint32_t bytes) {
  if (threadIdx.x % 32 == 0)
    arrive_expecting(b, bytes);
  else
    arrive(b);
}

/// Goes through the stages of a ring again and again; the parity is that of the next completion of a full barrier. Who fills
/// waits for the empty barrier with the other parity, so that the first round finds every stage empty.
template <int stages>
struct ring_place {
  int stage = 0;
  std::uint32_t parity = 0;

  __device__ void next() {
    if (++stage < stages) return;
    stage = 0;
    parity ^= 1;
  }
};

/// What this thread wrote to shared memory by ordinary stores is there for wgmma and the copy engine, after a barrier of
/// the threads that read it or start the copy.
__device__ inline void fence_for_async() { ptx::fence_proxy_async(ptx::space_shared); }

/// Starts the copy of a box of a tensor, from these coordinates on, innermost first; zeros where it ends. By one thread, the
/// barrier having been told of the bytes.
template <int rank>
__device__ inline void copy_box(void* to, const CUtensorMap& from, const std::int32_t (&coordinates)[rank],
                                barrier* b) {
  ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, to, &from, coordinates, b);
}

__device__ inline void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// A barrier of some of the warps, `threads` in all; id 0 is that of __syncthreads.
__device__ inline void meet(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Registers of each thread of a warpgroup from here on, a multiple of 8; the kernel needs __launch_bounds__(threads, 1).
template <int count>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}

}  // namespace msabench::cuda_sm90

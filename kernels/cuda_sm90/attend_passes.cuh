// SPDX-License-Identifier: Apache-2.0
// Thread blocks of a kernel that wait for each other, pass by pass: results of a pass are added up when all its works are
// done, and overwritten when they have been added up.
//
// Works and units of tokens are begun in order, each by whoever is there first. So whoever waits, waits for what running
// thread blocks have begun, and these wait for earlier passes alone.
#pragma once

#include <cstdint>

#include "kernels/cuda_sm90/attend_lists.cuh"

namespace msabench::cuda_sm90 {

/// What other thread blocks wrote before they told is there after a read that shows it.
__device__ inline std::uint32_t read_told(const std::uint32_t* counter) {
  std::uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value;
}
__device__ inline void wait_for_count(const std::uint32_t* counter, std::uint32_t count) {
  constexpr unsigned nap_ns = 200;
  while (read_told(counter) < count) __nanosleep(nap_ns);
}
/// By a thread that a barrier has told of what the others did.
__device__ inline void tell(std::uint32_t* counter, std::uint32_t count) {
  __threadfence();
  atomicAdd(counter, count);
}
/// What other threads wrote, and this one knows of, is there for the copy engine.
__device__ inline void fence_for_async_everywhere() { asm volatile("fence.proxy.async;" ::: "memory"); }

/// Places of results, used again and again. Each thread block has its own, and asks for works in their order.
class result_places {
 public:
  /// Waits until nobody needs what the results of a work will overwrite.
  __device__ void wait(const attend_chunk& chunk, const block_work& work) {
    const std::int64_t end = std::int64_t{work.first_pair} + work.count;
    for (; read_ < work.pass; ++read_) {
      const pass_extent pass = chunk.passes[read_];
      if (pass.first_pair + chunk.room >= end) return;
      if (pass.works > 0) wait_for_count(chunk.units_done + read_, chunk.told_of_pass());
    }
  }

 private:
  std::uint32_t read_ = 0;  ///< passes whose results have all been read
};

}  // namespace msabench::cuda_sm90

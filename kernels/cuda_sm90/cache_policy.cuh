// SPDX-License-Identifier: Apache-2.0
// Copies of the copy engine that say what is to be kept in the second-level cache, which libcu++ has no names for.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/cuda/mma.cuh"
#include "kernels/cuda_sm90/barriers.cuh"

namespace msabench::cuda_sm90 {

using cache_policy = std::uint64_t;
__device__ inline cache_policy keep_usually() {
  cache_policy policy;
  asm("createpolicy.fractional.L2::evict_normal.b64 %0;" : "=l"(policy));
  return policy;
}
/// Of what nobody reads again soon.
__device__ inline cache_policy keep_least() {
  cache_policy policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0;" : "=l"(policy));
  return policy;
}
/// Of what is read again and again.
__device__ inline cache_policy keep_longest() {
  cache_policy policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0;" : "=l"(policy));
  return policy;
}

/// As copy_box, with a policy.
__device__ inline void copy_box(void* to, const CUtensorMap& from, const std::int32_t (&at)[4], barrier* b,
                                cache_policy policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, "
      "%3, %4, %5}], [%6], %7;" ::"r"(cuda::shared_address(to)),
      "l"(&from), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(cuda::shared_address(b)), "l"(policy)
      : "memory");
}
__device__ inline void copy_box(void* to, const CUtensorMap& from, const std::int32_t (&at)[3], barrier* b,
                                cache_policy policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, "
      "%3, %4}], [%5], %6;" ::"r"(cuda::shared_address(to)),
      "l"(&from), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(cuda::shared_address(b)), "l"(policy)
      : "memory");
}

}  // namespace msabench::cuda_sm90

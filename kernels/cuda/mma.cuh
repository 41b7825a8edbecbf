// SPDX-License-Identifier: Apache-2.0
// The instructions of sm_80 that tiles are computed with: mma.sync m16n8k16, ldmatrix and cp.async.
//
// Fragments of m16n8k16, lane = 4 * g + t (g = 0..7, t = 0..3), two 16-bit values a register, the lower column first:
//   A [16][16]  a[0]: row g, columns 2t, 2t+1; a[1]: row g+8; a[2]: row g, columns 2t+8, 2t+9; a[3]: row g+8 of these
//   B [16][8]   b[0]: column g, rows 2t, 2t+1; b[1]: rows 2t+8, 2t+9
//   C [16][8]   c[0], c[1]: row g, columns 2t, 2t+1; c[2], c[3]: row g+8
// ldmatrix gives each lane a row address of an 8 x 8 matrix (lanes 0-7 the first, 8-15 the second, ...) and puts row g,
// columns 2t, 2t+1 of it into lane 4g+t; .trans puts rows 2t, 2t+1 of column g there.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace msabench::cuda {

/// Stored values of 16 bits and their pairs.
template <class T>
struct storage;
template <>
struct storage<__nv_bfloat16> {
  using pair = __nv_bfloat162;
  static __device__ __nv_bfloat16 of(float x) { return __float2bfloat16_rn(x); }
  static __device__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
  static __device__ float2 widen(pair x) { return __bfloat1622float2(x); }
  static __device__ std::uint32_t pack(float low, float high) {
    const pair p = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&p);
  }
};
template <>
struct storage<__half> {
  using pair = __half2;
  static __device__ __half of(float x) { return __float2half_rn(x); }
  static __device__ float widen(__half x) { return __half2float(x); }
  static __device__ float2 widen(pair x) { return __half22float2(x); }
  static __device__ std::uint32_t pack(float low, float high) {
    const pair p = __floats2half2_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&p);
  }
};

/// c += a * b
template <class T>
__device__ inline void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1);
template <>
__device__ inline void mma<__nv_bfloat16>(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                          std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ inline void mma<__half>(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

/// Four matrices of 8 x 8; `row` is this lane's row address in shared memory, aligned to 16 bytes.
__device__ inline void load_matrices(std::uint32_t (&r)[4], std::uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}
__device__ inline void load_matrices_transposed(std::uint32_t (&r)[4], std::uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}

/// 16 bytes from global to shared memory, in the background; zeros where `there` is false, and then nothing is read.
__device__ inline void copy_async(std::uint32_t to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}
/// The same of what nobody reads again soon, with the policy that read_once returns.
__device__ inline void copy_async(std::uint32_t to, const void* from, bool there, std::uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(to), "l"(from),
               "r"(there ? 16 : 0), "l"(policy)
               : "memory");
}
/// What the second-level cache is to let go of first.
__device__ inline std::uint64_t read_once() {
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0;" : "=l"(policy));
  return policy;
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Until at most `pending` of this thread's committed groups are on their way.
template <int pending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

}  // namespace msabench::cuda

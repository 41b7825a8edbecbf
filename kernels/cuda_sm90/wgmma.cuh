// SPDX-License-Identifier: Apache-2.0
// Matrix products of a warpgroup, four warps from a multiple of four on: wgmma m64nNk16 of bf16 and fp16, m64nNk32 of
// e4m3, with fp32 sums in registers. B is in shared memory, A too or in registers; shared_layout.h says how.
//
// Fragments, warp w of the group, lane = 4 * g + t (g = 0..7, t = 0..3):
//   C [64][N]  c[4n], c[4n+1]: row 16w + g, columns 8n + 2t, 8n + 2t + 1; c[4n+2], c[4n+3]: row 16w + g + 8
//   A [64][16] in registers, rows 16w ..: as of mma.sync m16n8k16 (kernels/cuda/mma.cuh)
//
// Products run in the background. In order: begin_products (what the warps wrote to registers is there), multiply ...,
// commit_products, finish_products; until then neither sums nor A in registers may be touched, nor operands in shared
// memory be overwritten. What ordinary stores wrote to shared memory needs fence_for_async in each writing thread, and a
// barrier, before it is an operand.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

namespace msabench::cuda_sm90 {

__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Until at most `pending` committed groups are not done.
template <int pending>
__device__ inline void finish_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

/// What x >= 0 is computed from comes before the next finish_products. The assembler moves that up past all arithmetic that
/// does without the products, which is then no longer done while they run. It moves no wait past what looks like a branch;
/// nobody sleeps.
__device__ inline void keep_before_wait(float x) {
  asm volatile("{ .reg .pred p; setp.lt.f32 p, %0, 0f00000000; @p nanosleep.u32 0; }" ::"f"(x) : "memory");
}

/// The compiler moves no use of these registers across this.
template <int count>
__device__ inline void pin(float (&c)[count]) {
#pragma unroll
  for (float& x : c) asm volatile("" : "+f"(x)::"memory");
}

/// How an operand lies in shared memory.
enum class major { k, mn };

template <class T, int N>
struct wgmma;

// The instruction's text has a place for each register.
#define MSABENCH_PLACES_4 "%0,%1,%2,%3"
#define MSABENCH_PLACES_8 MSABENCH_PLACES_4 ",%4,%5,%6,%7"
#define MSABENCH_PLACES_16 MSABENCH_PLACES_8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define MSABENCH_PLACES_32 MSABENCH_PLACES_16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define MSABENCH_PLACES_40 MSABENCH_PLACES_32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define MSABENCH_PLACES_64                                                                            \
  MSABENCH_PLACES_32                                                                                  \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55," \
  "%56,%57,%58,%59,%60,%61,%62,%63"
#define MSABENCH_PLACES_128                                                                               \
  MSABENCH_PLACES_64                                                                                      \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88," \
  "%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,"   \
  "%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define MSABENCH_SUMS_4(i) "+f"(c[(i)]), "+f"(c[(i) + 1]), "+f"(c[(i) + 2]), "+f"(c[(i) + 3])
#define MSABENCH_SUMS_8(i) MSABENCH_SUMS_4(i), MSABENCH_SUMS_4((i) + 4)
#define MSABENCH_SUMS_16(i) MSABENCH_SUMS_8(i), MSABENCH_SUMS_8((i) + 8)
#define MSABENCH_SUMS_32(i) MSABENCH_SUMS_16(i), MSABENCH_SUMS_16((i) + 16)
#define MSABENCH_SUMS_40(i) MSABENCH_SUMS_32(i), MSABENCH_SUMS_8((i) + 32)
#define MSABENCH_SUMS_64(i) MSABENCH_SUMS_32(i), MSABENCH_SUMS_32((i) + 32)
#define MSABENCH_SUMS_128(i) MSABENCH_SUMS_64(i), MSABENCH_SUMS_64((i) + 64)

// R = N / 2 registers of sums; P0 .. P6: places R .. R + 6.
#define MSABENCH_WGMMA_16(T, NAME, N, R, P0, P1, P2, P3, P4, P5, P6)                                                \
  template <>                                                                                                       \
  struct wgmma<T, N> {                                                                                              \
    template <major a_major, major b_major>                                                                         \
    static __device__ void multiply(float (&c)[R], std::uint64_t a, std::uint64_t b, int add) {                     \
      asm volatile("{ .reg .pred p; setp.ne.b32 p, " P2                                                             \
                   ", 0;\n"                                                                                         \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME " {" MSABENCH_PLACES_##R         \
                   "}, " P0 ", " P1 ", p, 1, 1, " P3 ", " P4 "; }"                                                  \
                   : MSABENCH_SUMS_##R(0)                                                                           \
                   : "l"(a), "l"(b), "r"(add), "n"(static_cast<int>(a_major)), "n"(static_cast<int>(b_major)));     \
    }                                                                                                               \
    template <major b_major>                                                                                        \
    static __device__ void multiply(float (&c)[R], const std::uint32_t (&a)[4], std::uint64_t b, int add) {         \
      asm volatile("{ .reg .pred p; setp.ne.b32 p, " P5                                                             \
                   ", 0;\n"                                                                                         \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME " {" MSABENCH_PLACES_##R         \
                   "}, {" P0 ", " P1 ", " P2 ", " P3 "}, " P4 ", p, 1, 1, " P6 "; }"                                \
                   : MSABENCH_SUMS_##R(0)                                                                           \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(static_cast<int>(b_major))); \
    }                                                                                                               \
  };
#define MSABENCH_WGMMA_8(T, NAME, N, R, P0, P1, P2, P3, P4, P5, P6)                                         \
  template <>                                                                                               \
  struct wgmma<T, N> {                                                                                      \
    static __device__ void multiply(float (&c)[R], std::uint64_t a, std::uint64_t b, int add) {             \
      asm volatile("{ .reg .pred p; setp.ne.b32 p, " P2                                                     \
                   ", 0;\n"                                                                                 \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32." NAME "." NAME " {" MSABENCH_PLACES_##R \
                   "}, " P0 ", " P1 ", p, 1, 1; }"                                                          \
                   : MSABENCH_SUMS_##R(0)                                                                   \
                   : "l"(a), "l"(b), "r"(add));                                                             \
    }                                                                                                       \
    static __device__ void multiply(float (&c)[R], const std::uint32_t (&a)[4], std::uint64_t b, int add) { \
      asm volatile("{ .reg .pred p; setp.ne.b32 p, " P5                                                     \
                   ", 0;\n"                                                                                 \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32." NAME "." NAME " {" MSABENCH_PLACES_##R \
                   "}, {" P0 ", " P1 ", " P2 ", " P3 "}, " P4 ", p, 1, 1; }"                                \
                   : MSABENCH_SUMS_##R(0)                                                                   \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));                         \
    }                                                                                                       \
  };
#define MSABENCH_WGMMA_SHAPES(KIND, T, NAME)                              \
  KIND(T, NAME, 8, 4, "%4", "%5", "%6", "%7", "%8", "%9", "%10")          \
  KIND(T, NAME, 16, 8, "%8", "%9", "%10", "%11", "%12", "%13", "%14")     \
  KIND(T, NAME, 32, 16, "%16", "%17", "%18", "%19", "%20", "%21", "%22")  \
  KIND(T, NAME, 64, 32, "%32", "%33", "%34", "%35", "%36", "%37", "%38")  \
  KIND(T, NAME, 80, 40, "%40", "%41", "%42", "%43", "%44", "%45", "%46")  \
  KIND(T, NAME, 128, 64, "%64", "%65", "%66", "%67", "%68", "%69", "%70") \
  KIND(T, NAME, 256, 128, "%128", "%129", "%130", "%131", "%132", "%133", "%134")

MSABENCH_WGMMA_SHAPES(MSABENCH_WGMMA_16, __nv_bfloat16, "bf16")
MSABENCH_WGMMA_SHAPES(MSABENCH_WGMMA_16, __half, "f16")
MSABENCH_WGMMA_SHAPES(MSABENCH_WGMMA_8, __nv_fp8_e4m3, "e4m3")

#undef MSABENCH_WGMMA_SHAPES
#undef MSABENCH_WGMMA_16
#undef MSABENCH_WGMMA_8
#undef MSABENCH_PLACES_4
#undef MSABENCH_PLACES_8
#undef MSABENCH_PLACES_16
#undef MSABENCH_PLACES_32
#undef MSABENCH_PLACES_40
#undef MSABENCH_PLACES_64
#undef MSABENCH_PLACES_128
#undef MSABENCH_SUMS_4
#undef MSABENCH_SUMS_8
#undef MSABENCH_SUMS_16
#undef MSABENCH_SUMS_32
#undef MSABENCH_SUMS_40
#undef MSABENCH_SUMS_64
#undef MSABENCH_SUMS_128

/// c = a * b, or c += a * b, one step along k; `add` is 0 or 1. Both in shared memory, by their descriptors ...
template <class T, int N, major a_major = major::k, major b_major = major::k>
__device__ inline void multiply(float (&c)[N / 2], std::uint64_t a, std::uint64_t b, int add) {
  if constexpr (sizeof(T) == 1) {
    static_assert(a_major == major::k && b_major == major::k, "operands of one byte are K-major");
    wgmma<T, N>::multiply(c, a, b, add);
  } else {
    wgmma<T, N>::template multiply<a_major, b_major>(c, a, b, add);
  }
}
/// ... or A in registers.
template <class T, int N, major b_major = major::k>
__device__ inline void multiply(float (&c)[N / 2], const std::uint32_t (&a)[4], std::uint64_t b, int add) {
  if constexpr (sizeof(T) == 1) {
    static_assert(b_major == major::k, "operands of one byte are K-major");
    wgmma<T, N>::multiply(c, a, b, add);
  } else {
    wgmma<T, N>::template multiply<b_major>(c, a, b, add);
  }
}

/// The same descriptor, as lane 0 has it: the assembler then knows that it is one for all lanes, and computes its steps once
/// for a warp, not in each lane, on the way from product to product.
__device__ inline std::uint64_t one_for_all(std::uint64_t descriptor) {
  const auto low = static_cast<std::uint32_t>(descriptor);
  return (descriptor >> 32 << 32) | __shfl_sync(~0u, low, 0);
}

}  // namespace msabench::cuda_sm90

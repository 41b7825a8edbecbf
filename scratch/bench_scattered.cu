#include "attend_bench.h"
#ifdef BENCH_TIMED
__device__ unsigned long long bench_spent[10], bench_end[3];
#define BENCH_T0 const long long bench_t0 = clock64()
#define BENCH_ADD(i) if (threadIdx.x % 32 == 0) atomicAdd(bench_spent + (i), static_cast<unsigned long long>(clock64() - bench_t0))
__device__ inline unsigned long long bench_now() { unsigned long long t; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t)); return t; }
#define BENCH_END(i) if (threadIdx.x % 32 == 0) atomicMax(bench_end + (i), bench_now())
#define BENCH_BEGIN if (threadIdx.x == 0) atomicMin(bench_end + 2, bench_now())
#endif
#include "attend_scattered_patched.cu"
namespace msabench::cuda_sm90 {
void bench_scattered(const attend_call& call, const attend_maps& maps, const attend_chunk& chunk, cudaStream_t stream,
                     marks& mark) {
  attend_scattered_tokens(call, maps, chunk, stream);
  mark("blocks");
}
void bench_timed(bool report) {
#ifdef BENCH_TIMED
  if (report) {
    unsigned long long spent[10], end[3];
    must(cudaMemcpyFromSymbol(spent, bench_spent, sizeof spent), "spent");
    must(cudaMemcpyFromSymbol(end, bench_end, sizeof end), "end");
    const char* names[10] = {"no room", "queries", "keys", "values", "consumers", "combiners", "pass not done", "ring full", "ring empty", "tell"};
    const double warps[10] = {1, 8, 8, 8, 8, 4, 1, 1, 4, 4};
    std::printf("  kcycles a warp:");
    for (int i = 0; i < 10; ++i) std::printf(" %s %.0f", names[i], static_cast<double>(spent[i]) / 132 / warps[i] / 1e3);
    std::printf("; consumers end at %.1f us, combiners at %.1f us\n", (end[0] - end[2]) / 1e3, (end[1] - end[2]) / 1e3);
  }
  unsigned long long zeros[10] = {}, ends[3] = {0, 0, ~0ull};
  must(cudaMemcpyToSymbol(bench_spent, zeros, sizeof zeros), "spent");
  must(cudaMemcpyToSymbol(bench_end, ends, sizeof ends), "end");
#else
  (void)report;
#endif
}
}

#include "attend_bench.h"
#include "attend_lists_patched.cu"
namespace msabench::cuda_sm90 {
double bench_budget = 256e6;
long bench_tokens = 0;
void bench_lists(const attend_call& call, const attend_chunk& chunk, cudaStream_t stream, marks& mark) {
  cudaMemsetAsync(chunk.counts, 0, reinterpret_cast<char*>(chunk.begins) - reinterpret_cast<char*>(chunk.counts), stream);
  mark("memset");
  list_tokens<<<static_cast<unsigned>(chunk.heads * chunk.tiles), 32 * tile_tokens, 0, stream>>>(call, chunk);
  mark("list_tokens");
  list_works<<<static_cast<unsigned>(chunk.heads), scan_threads, 0, stream>>>(chunk);
  mark("list_works");
  const std::int64_t entries = chunk.heads * chunk.tokens_of_head() * chunk.topk;
  place_pairs<<<static_cast<unsigned>(ceil_div(entries, 256)), 256, 0, stream>>>(chunk, call.block);
  mark("place_pairs");
}
}

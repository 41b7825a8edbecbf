#include "attend_bench.h"
#include "attend_scattered_patched.cu"
namespace msabench::cuda_sm90 {
void bench_scattered(const attend_call& call, const attend_maps& maps, const attend_chunk& chunk, cudaStream_t stream,
                     marks& mark) {
  if (call.keys.type.bits == 8) { attend_scattered_tokens(call, maps, chunk, stream); mark("blocks"); return; }
  using T = __nv_bfloat16;
  constexpr std::size_t shared = sizeof(scattered_shared<T>);
  cuda::allow_shared_memory(attend_blocks<T, T>, shared);
  const std::int64_t tokens = chunk.heads_of_group * chunk.tokens_of_head();
  const auto combine_grid = static_cast<unsigned>(cuda::ceil_div(tokens, combine_warps));
  for (attend_pass pass{}; pass.group < chunk.groups; ++pass.group)
    for (pass.range = 0; pass.range < chunk.ranges; ++pass.range) {
      attend_blocks<T, T><<<static_cast<unsigned>(cuda::multiprocessors()), scattered_shared<T>::threads, shared, stream>>>(
          maps, call, chunk, pass);
      mark("blocks");
      combine_blocks<T><<<combine_grid, 32 * combine_warps, 0, stream>>>(call, chunk, pass);
      mark("combine");
    }
}
}

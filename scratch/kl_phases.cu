// SPDX-License-Identifier: Apache-2.0
// Not part of the product: kl of a variant, with the time that each of its kernels takes in all chunks.
#include <cstdio>

#include KL

namespace msabench::cuda_sm90 {

bool taken(const msabench_problem& p) { return takes_kl(p); }

void time_phases(const kl_call& call, const run_context& context) {
  using T = __nv_bfloat16;
  cuda::workspace_cutter memory(context.scratch);
  const msabench_problem& p = context.problem;
  kl_run r = cut(memory, p);
  r.parts.call = call;
  r.parts.readers.bind(call.rows, call.keys.cu_seqlens_kv, block_keys,
                       {call.ids, call.id_row_stride, call.id_head_stride, call.topk});
  map_rows(r.q, call, call.q, call.kv_heads * kl_heads, kl_heads), map_rows(r.q_idx, call, call.q_idx, call.kv_heads, 1);
  cudaEvent_t events[7];
  for (auto& e : events) cudaEventCreate(&e);
  float sums[6] = {};
  for (std::int64_t first = 0; first < r.parts.call.rows.row_bound; first += r.parts.chunk, ++r.chunk) {
    cudaEventRecord(events[0]);
    r.parts.readers.first_row = first;
    r.parts.readers.find(nullptr);
    cudaEventRecord(events[1]);
    score_readings<T>(r, nullptr);
    cudaEventRecord(events[2]);
    normalise_rows(r, nullptr);
    cudaEventRecord(events[3]);
    compare_readings<T>(r, nullptr);
    cudaEventRecord(events[4]);
    add_rows(r, nullptr);
    cudaEventRecord(events[5]);
    add_keys(r, nullptr);
    cudaEventRecord(events[6]);
    cudaEventSynchronize(events[6]);
    for (int i = 0; i < 6; ++i) {
      float ms;
      cudaEventElapsedTime(&ms, events[i], events[i + 1]);
      sums[i] += ms;
    }
  }
  std::printf("   %lld chunks of %lld tokens; ms: readers %.3f, scores %.3f, normalise %.3f, compare %.3f, dq %.3f, dk %.3f\n",
              static_cast<long long>(r.chunk), static_cast<long long>(r.parts.chunk), sums[0], sums[1], sums[2], sums[3],
              sums[4], sums[5]);
  for (auto& e : events) cudaEventDestroy(e);
}

}  // namespace msabench::cuda_sm90

// SPDX-License-Identifier: Apache-2.0
// Not part of the product: attend_backward of a variant, with the time that each of its kernels takes in all chunks.
#include <cstdio>

#include ATTEND_BACKWARD

namespace msabench::cuda_sm90 {

void time_phases(const backward_call& call, const run_context& context) {
  using T = __nv_bfloat16;
  cuda::workspace_cutter memory(context.scratch);
  backward_run r = cut(memory, context.problem);
  r.parts.call = call;
  r.parts.readers.bind(call.rows, call.keys.cu_seqlens_kv, call.block,
                       {call.ids, call.id_row_stride, call.id_head_stride, call.topk});
  map_rows(r.q, call, call.q), map_rows(r.d_out, call, call.d_out);
  cudaEvent_t events[5];
  for (auto& e : events) cudaEventCreate(&e);
  float sums[4] = {};
  int chunks = 0;
  const std::int64_t rows = call.rows.row_bound;
  for (std::int64_t first = 0; first == 0 || first < rows; first += r.chunk, ++chunks) {
    r.first = first == 0;
    r.last = first + r.chunk >= rows;
    cudaEventRecord(events[0]);
    if (first == 0) cuda::sum_rows<T>(r.parts, nullptr);
    cudaEventRecord(events[1]);
    r.parts.readers.first_row = first;
    r.parts.readers.find(nullptr);
    cudaEventRecord(events[2]);
    add_block_gradients<T>(r, nullptr);
    cudaEventRecord(events[3]);
    const std::int64_t items = std::min(r.chunk, rows - first) * r.parts.call.kv_heads;
    add_readings<<<cuda::grid_blocks(items, 1, 64), sum_threads>>>(r);
    cudaEventRecord(events[4]);
    cudaEventSynchronize(events[4]);
    for (int i = 0; i < 4; ++i) {
      float ms;
      cudaEventElapsedTime(&ms, events[i], events[i + 1]);
      sums[i] += ms;
    }
  }
  std::printf("   %d chunks of %lld tokens; ms: sums of rows %.3f, readers %.3f, blocks %.3f, dq %.3f\n", chunks,
              static_cast<long long>(r.chunk), sums[0], sums[1], sums[2], sums[3]);
  for (auto& e : events) cudaEventDestroy(e);
}

}  // namespace msabench::cuda_sm90

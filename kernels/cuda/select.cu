// SPDX-License-Identifier: Apache-2.0
// Block ids from given scores. Of many rows each has a warp; few rows have a thread block each, whose warps put their
// lists together.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.h"
#include "kernels/cuda/top_blocks.cuh"

namespace msabench::cuda {
namespace {

constexpr int warps = 16;
constexpr int loads = 8;  // on their way at once in each lane

template <int row_warps>
__global__ void __launch_bounds__(warps * 32) select_rows(select_call c) {
  __shared__ rank lists[warps / 2][32];
  const int warp = threadIdx.x / 32, part = warp % row_warps, lane = threadIdx.x % 32;
  constexpr int rows_at_once = warps / row_warps;
  const std::int64_t rows = c.rows.tokens() * c.heads;
  for (std::int64_t first_row = std::int64_t{blockIdx.x} * rows_at_once; first_row < rows;
       first_row += std::int64_t{gridDim.x} * rows_at_once) {
    const std::int64_t i = first_row + warp / row_warps;
    if (i >= rows) continue;  // of a whole row: its warps stay together
    const std::int64_t row = i / c.heads, head = i % c.heads;
    // Lengths above the bound of the problem are the caller's fault, but no reason to read behind the scores.
    const std::int64_t visible = min(visible_blocks(c.rows.place(row), c.rule.block), c.max_blocks);
    const free_blocks free(c.rule, visible);
    const float* const scores = c.scores + head * c.score_head_stride + row * c.score_row_stride;
    top_list best;
    rank floor = no_block;
    constexpr int step = loads * 32;
    if (free.wanted > 0) {
      for (std::int64_t first = free.first + part * step; first < free.end; first += row_warps * step) {
        float score[loads];
#pragma unroll
        for (int k = 0; k < loads; ++k) {
          const std::int64_t id = first + 32 * k + lane;
          score[k] = id < free.end ? scores[id] : 0;
        }
#pragma unroll
        for (int k = 0; k < loads; ++k) {
          const std::int64_t id = first + 32 * k + lane;
          const rank candidate = rank_of(score[k], id);
          const unsigned better = __ballot_sync(all_lanes, id < free.end && candidate > floor);
          if (better == 0) continue;
          best.offer(candidate, better);
          floor = __shfl_sync(all_lanes, best.mine, free.wanted - 1);
        }
      }
    }
    for (int half = row_warps / 2; half > 0; half /= 2) {
      if (part >= half && part < 2 * half) lists[part - half][lane] = best.mine;
      __syncthreads();
      if (part < half) best.merge(lists[part][lane]);
      __syncthreads();
    }
    if (part == 0) write_ids(c.rule, visible, best.mine, c.ids + row * c.id_row_stride + head * c.id_head_stride);
  }
}

}  // namespace

void select(const select_call& c, const run_context& context) {
  const auto stream = static_cast<cudaStream_t>(context.stream);
  const std::int64_t rows = c.rows.row_bound * c.heads;
  if (c.rows.batch == 0 || rows == 0) return;
  constexpr int few_blocks = 256;  // for one warp
  if (rows <= 4 * multiprocessors() && c.max_blocks > few_blocks)
    select_rows<warps><<<grid_blocks(rows, 1), warps * 32, 0, stream>>>(c);
  else
    select_rows<1><<<grid_blocks(rows, warps), warps * 32, 0, stream>>>(c);
}

}  // namespace msabench::cuda

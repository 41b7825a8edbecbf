// SPDX-License-Identifier: Apache-2.0
// Block ids from given scores. Of many rows each has a warp, few rows have a thread block each.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/row_selection.cuh"
#include "kernels/cuda/scoring.h"
#include "kernels/cuda/top_blocks.cuh"

namespace msabench::cuda {
namespace {

constexpr int warps = 16;         // of rows that have one each
constexpr int row_threads = 256;  // of a row that has a thread block

struct selection {
  select_call call;
  std::int64_t columns;  ///< of scores, that may be read
};

/// A row that sees `visible` blocks, as far as there are scores of them. Lengths above the bound of the problem are the
/// caller's fault, but no reason to read behind the scores.
struct selected_row {
  std::int64_t row, head, visible;

  __device__ selected_row(const select_call& c, std::int64_t i)
      : row(i / c.heads),
        head(i % c.heads),
        visible(min(visible_blocks(c.rows.place(row), c.rule.block), c.max_blocks)) {}
  __device__ const float* scores(const select_call& c) const {
    return c.scores + head * c.score_head_stride + row * c.score_row_stride;
  }
  __device__ std::int32_t* ids(const select_call& c) const {
    return c.ids + row * c.id_row_stride + head * c.id_head_stride;
  }
};

__global__ void __launch_bounds__(warps * 32) select_by_warps(selection s) {
  constexpr int loads = 8, step = loads * 32;  // scores on their way at once
  const select_call& c = s.call;
  const int lane = threadIdx.x % 32;
  const std::int64_t rows = c.rows.tokens() * c.heads;
  let_next_begin();
  for (std::int64_t i = std::int64_t{blockIdx.x} * warps + threadIdx.x / 32; i < rows;
       i += std::int64_t{gridDim.x} * warps) {
    const selected_row at(c, i);
    const free_blocks free(c.rule, at.visible);
    wait_for_previous();
    const float* const scores = at.scores(c);
    top_list best;
    rank floor = no_block;  // candidates below it have no place
    for (std::int64_t base = free.first; base < free.end; base += step) {
      rank candidates[loads], own_best = no_block;
#pragma unroll
      for (int k = 0; k < loads; ++k) {
        const std::int64_t id = base + 32 * k + lane;
        candidates[k] = id < free.end ? rank_of(scores[id], id) : no_block;
        own_best = max(own_best, candidates[k]);
      }
      // The best of each lane show what the last place takes at least, before any list is there.
      if (base == free.first) floor = __shfl_sync(all_lanes, top_list::sorted(own_best), free.wanted - 1);
#pragma unroll
      for (int k = 0; k < loads; ++k) {
        const unsigned better = __ballot_sync(all_lanes, candidates[k] != no_block && candidates[k] >= floor);
        if (better == 0) continue;
        best.offer(candidates[k], better);
        floor = max(floor, __shfl_sync(all_lanes, best.mine, free.wanted - 1));
      }
    }
    write_ids(c.rule, at.visible, best.mine, at.ids(c));
  }
  // Those without a row as well: whoever comes next relies on both kernels being done.
  wait_for_previous();
}

__global__ void __launch_bounds__(row_threads) select_by_blocks(selection s) {
  __shared__ row_selection<row_threads> found;
  const select_call& c = s.call;
  let_next_begin();
  const bool there = blockIdx.x < c.rows.tokens() * c.heads;
  const selected_row at(c, there ? blockIdx.x : 0);
  wait_for_previous();
  if (!there) return;
  found.select(c.rule, at.visible, at.scores(c), s.columns);
  if (threadIdx.x < c.rule.topk) at.ids(c)[threadIdx.x] = found.ids[threadIdx.x];
}

}  // namespace

void select(const select_call& c, const run_context& context) { select_blocks(c, c.max_blocks, false, context); }

void select_blocks(const select_call& c, std::int64_t columns, bool overlaps, const run_context& context) {
  const std::int64_t rows = c.rows.row_bound * c.heads;
  if (c.rows.batch == 0 || rows == 0) return;
  constexpr int few_blocks = 256;  // for one warp
  const bool by_blocks = rows <= 4 * multiprocessors() && c.max_blocks > few_blocks;
  const unsigned threads = by_blocks ? row_threads : warps * 32;
  const unsigned blocks = by_blocks ? static_cast<unsigned>(rows) : grid_blocks(rows, warps);
  launch_chained(by_blocks ? select_by_blocks : select_by_warps,
                 {dim3(blocks), threads, 0, static_cast<cudaStream_t>(context.stream), overlaps},
                 selection{c, columns});
}

}  // namespace msabench::cuda

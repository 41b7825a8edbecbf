// SPDX-License-Identifier: Apache-2.0
// Block ids from given scores. Of many rows each has a warp; few rows have a thread block each, whose warps put their
// lists together.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/scoring.h"
#include "kernels/cuda/top_blocks.cuh"

namespace msabench::cuda {
namespace {

constexpr int warps = 16;

/// What the warps of a row tell each other.
struct meeting {
  rank floors[warps];
  rank kept[warps * 32];
  int count;
};

/// The best of all warps' lists, for the first one. What is below a warp's floor has no place.
__device__ top_list best_of_all(const top_list& own, rank floor, meeting& shared) {
  const int lane = threadIdx.x % 32;
  if (threadIdx.x == 0) shared.count = 0;
  __syncthreads();
  const int count = __popc(__ballot_sync(all_lanes, own.mine != no_block && own.mine >= floor));
  int place = 0;
  if (lane == 0) place = atomicAdd(&shared.count, count);
  place = __shfl_sync(all_lanes, place, 0);
  if (lane < count) shared.kept[place + lane] = own.mine;
  __syncthreads();
  const int all = shared.count;
  top_list best;
  if (threadIdx.x < 32)
    for (int i = 0; i < all; i += 32) best.merge(top_list::sorted(i + lane < all ? shared.kept[i + lane] : no_block));
  return best;
}

template <int row_warps>
__global__ void __launch_bounds__(warps * 32) select_rows(select_call c) {
  constexpr bool alone = row_warps == 1;
  constexpr int loads = alone ? 8 : 16, step = loads * 32;  // scores on their way at once
  constexpr int rows_at_once = warps / row_warps;
  __shared__ meeting shared;
  const int warp = threadIdx.x / 32, part = warp % row_warps, lane = threadIdx.x % 32;
  const std::int64_t rows = c.rows.tokens() * c.heads;
  for (std::int64_t first_row = std::int64_t{blockIdx.x} * rows_at_once; first_row < rows;
       first_row += std::int64_t{gridDim.x} * rows_at_once) {
    const std::int64_t i = first_row + warp / row_warps;
    if (i >= rows) continue;  // of a whole row: its warps stay together
    const std::int64_t row = i / c.heads, head = i % c.heads;
    // Lengths above the bound of the problem are the caller's fault, but no reason to read behind the scores.
    const std::int64_t visible = min(visible_blocks(c.rows.place(row), c.rule.block), c.max_blocks);
    const free_blocks free(c.rule, visible);
    wait_for_previous();
    const float* const scores = c.scores + head * c.score_head_stride + row * c.score_row_stride;
    top_list best;
    rank floor = no_block;  // candidates below it have no place
    for (std::int64_t base = free.first; base < free.end; base += row_warps * step) {
      rank candidates[loads], own_best = no_block;
#pragma unroll
      for (int k = 0; k < loads; ++k) {
        const std::int64_t id = base + part * step + 32 * k + lane;
        candidates[k] = id < free.end ? rank_of(scores[id], id) : no_block;
        own_best = max(own_best, candidates[k]);
      }
      if (base == free.first) {
        // The best of each lane show what the last place takes at least, before any list is there.
        floor = __shfl_sync(all_lanes, top_list::sorted(own_best), free.wanted - 1);
        if constexpr (!alone) {
          if (lane == 0) shared.floors[part] = floor;
          __syncthreads();
          for (const rank other : shared.floors) floor = max(floor, other);
        }
      }
#pragma unroll
      for (int k = 0; k < loads; ++k) {
        const unsigned better = __ballot_sync(all_lanes, candidates[k] != no_block && candidates[k] >= floor);
        if (better == 0) continue;
        best.offer(candidates[k], better);
        floor = max(floor, __shfl_sync(all_lanes, best.mine, free.wanted - 1));
      }
    }
    if constexpr (!alone) best = best_of_all(best, floor, shared);
    if (part == 0) write_ids(c.rule, visible, best.mine, c.ids + row * c.id_row_stride + head * c.id_head_stride);
  }
  // Those without a row as well: whoever comes next relies on both kernels being done.
  wait_for_previous();
}

}  // namespace

void select(const select_call& c, const run_context& context) { select_blocks(c, false, context); }

void select_blocks(const select_call& c, bool follows_scores, const run_context& context) {
  const auto stream = static_cast<cudaStream_t>(context.stream);
  const std::int64_t rows = c.rows.row_bound * c.heads;
  if (c.rows.batch == 0 || rows == 0) return;
  constexpr int few_blocks = 256;  // for one warp
  const bool by_blocks = rows <= 4 * multiprocessors() && c.max_blocks > few_blocks;
  const auto kernel = by_blocks ? select_rows<warps> : select_rows<1>;
  const unsigned blocks = grid_blocks(rows, by_blocks ? 1 : warps);
  // Of kernels that are not ours nobody knows what they write.
  if (follows_scores)
    launch_overlapping(kernel, blocks, warps * 32, stream, c);
  else
    kernel<<<blocks, warps * 32, 0, stream>>>(c);
}

}  // namespace msabench::cuda

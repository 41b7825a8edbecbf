// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cpu/operators.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scoring.h"

namespace msabench::cpu {
namespace {

struct layout {
  std::int64_t* tile_starts;
  thread_slices slices;
  double bytes;

  layout(void* memory, const msabench_problem& problem, const scoring_sizes& sizes, int threads) {
    carver shared(memory);
    tile_starts = shared.take<std::int64_t>(static_cast<double>(problem.batch) + 1);
    slices = take_slices(shared, threads, [&](carver& slice) { take_scratch(slice, sizes); });
    bytes = shared.bytes();
  }
};

}  // namespace

void score(const index_call& call, const run_context& context) {
  const scoring_sizes sizes = scoring_sizes_of(context.problem);
  const layout memory(context.scratch, context.problem, sizes, context.threads);
  const token_tiles tiles(call.rows, sizes.tile_tokens, memory.tile_starts);
  // Blocks are independent of each other, so a single row of a long context keeps all threads busy. The last tokens see
  // the most of them and come first.
  for_each_task(context.threads, tiles.count() * sizes.strips, [&](std::int64_t task, int thread) {
    carver slice = memory.slices.of(thread);
    const scoring_scratch scratch = take_scratch(slice, sizes);
    const scoring_rows rows = scoring_rows_of(call, tiles.at(tiles.count() - 1 - task / sizes.strips), scratch);
    const std::int64_t first = task % sizes.strips * sizes.strip_blocks;
    const std::int64_t count = std::min(sizes.strip_blocks, call.max_blocks - first);
    score_strip(call, rows, first, count, sizes.strip_blocks, scratch);
    write_strip(call, rows, first, count, sizes.strip_blocks, scratch);
  });
}

double score_scratch_bytes(const msabench_problem& problem, int threads) {
  return layout(nullptr, problem, scoring_sizes_of(problem), threads).bytes;
}

}  // namespace msabench::cpu

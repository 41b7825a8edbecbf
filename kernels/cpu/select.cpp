// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/common/check.h"
#include "kernels/cpu/best_blocks.h"
#include "kernels/cpu/operators.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/tile.h"

namespace msabench::cpu {
namespace {

scored_block* take_heap(carver& memory, const msabench_problem& problem) {
  return memory.take<scored_block>(static_cast<double>(block_capacity(problem)));
}

thread_slices take_heaps(carver& memory, const msabench_problem& problem, int threads) {
  return take_slices(memory, threads, [&](carver& slice) { take_heap(slice, problem); });
}

}  // namespace

void select(const select_call& call, const run_context& context) {
  carver memory(context.scratch);
  const thread_slices slices = take_heaps(memory, context.problem, context.threads);
  const std::int64_t rows = call.rows.tokens() * call.heads;
  constexpr std::int64_t rows_at_once = 8;
  for_each_task(context.threads, ceil_div(rows, rows_at_once), [&](std::int64_t task, int thread) {
    carver slice = slices.of(thread);
    scored_block* chosen = take_heap(slice, context.problem);
    for (std::int64_t i = task * rows_at_once; i < std::min(rows, (task + 1) * rows_at_once); ++i) {
      const std::int64_t row = i / call.heads, head = i % call.heads;
      const std::int64_t visible = std::min(visible_blocks(call.rows.place(row), call.rule.block), call.max_blocks);
      const free_blocks free = free_blocks_of(call.rule, visible);
      best_blocks best{chosen, free.wanted};
      offer(best, call.scores + head * call.score_head_stride + row * call.score_row_stride + free.first, free.first,
            free.count);
      write_ids(call.rule, visible, best, call.ids + row * call.id_row_stride + head * call.id_head_stride);
    }
  });
}

double select_scratch_bytes(const msabench_problem& problem, int threads) {
  carver memory(nullptr);
  take_heaps(memory, problem, threads);
  return memory.bytes();
}

}  // namespace msabench::cpu

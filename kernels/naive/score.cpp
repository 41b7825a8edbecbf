// SPDX-License-Identifier: Apache-2.0
#include "kernels/naive/score.h"

#include <algorithm>

#include "kernels/common/storage.h"
#include "kernels/naive/attend.h"
#include "kernels/naive/tasks.h"

namespace msabench::naive {

score_scratch::score_scratch(void* memory, const score_sizes& sizes)
    : tile(static_cast<float*>(memory)),
      queries(tile + sizes.block * sizes.width),
      scores(queries + sizes.heads * sizes.width),
      rest(scores + sizes.block) {}

double score_scratch_bytes(const score_sizes& sizes) {
  const auto heads = static_cast<double>(sizes.heads), width = static_cast<double>(sizes.width),
             block = static_cast<double>(sizes.block);
  return sizeof(float) * (block * width + heads * width + block);
}

row_place place_in_bounds(const index_call& call, std::int64_t row) {
  row_place place = call.rows.place(row);
  place.position = std::min(place.position, call.max_blocks * call.rule.block - 1);
  return place;
}

std::int32_t index_head(std::int32_t kv_head, std::int32_t) { return kv_head; }

void load_queries(const stages& stage, const index_call& call, std::int64_t row, float* queries) {
  for (std::int32_t head = 0; head < call.heads; ++head) {
    const std::int64_t element = row * call.q_row_stride + stage.index_head(head, call.heads) * call.q_head_stride;
    float* query = queries + std::int64_t{head} * call.width;
    load_row(call.q + element * bytes_of(call.q_type), call.q_type, call.width, query);
    if (call.q_scale == nullptr) continue;
    const float factor =
        call.q_scale[row * call.q_scale_row_stride + stage.index_head(head, call.heads) * call.q_scale_head_stride];
    for (std::int32_t c = 0; c < call.width; ++c) query[c] *= factor;
  }
}

tile load_index_tile(const stages& stage, const index_call& call, const row_place& place, std::int64_t block,
                     const score_scratch& scratch) {
  const tile keys{scratch.tile, stage.visible_keys(place, block, call.rule.block), call.width, block, 0, 1};
  load_tile(stage, call.keys, place, 0, call.rule.block, keys, scratch.tile);
  return keys;
}

void score_blocks(const stages& stage, const index_call& call, const block_range& blocks, const score_scratch& scratch,
                  float* maxima, std::int64_t head_stride) {
  for (std::int64_t block = blocks.first; block < blocks.end; ++block) {
    const tile keys = load_index_tile(stage, call, blocks.place, block, scratch);
    for (std::int32_t head = 0; head < call.heads; ++head) {
      maxima[head * head_stride + block] =
          stage.block_maximum(scratch.queries + std::int64_t{head} * call.width, call.scale, keys, scratch.scores);
    }
  }
}

void score(const stages& stage, const index_call& call, int threads, void* scratch, std::int64_t slice_bytes) {
  // A single row of a long context keeps all threads busy.
  constexpr std::int64_t task_blocks = 64;
  const std::int64_t row_tasks = (call.max_blocks + task_blocks - 1) / task_blocks;
  for_each_task(call.rows.tokens() * row_tasks, threads, 1, scratch, slice_bytes, [&](std::int64_t task, void* slice) {
    const score_scratch memory(slice, {call.heads, call.width, call.rule.block});
    const std::int64_t row = task / row_tasks, first = task % row_tasks * task_blocks;
    load_queries(stage, call, row, memory.queries);
    // Blocks past the own one have no visible key, and so no score.
    score_blocks(stage, call, {row, place_in_bounds(call, row), first, std::min(first + task_blocks, call.max_blocks)},
                 memory, call.scores + row * call.score_row_stride, call.score_head_stride);
  });
}

}  // namespace msabench::naive

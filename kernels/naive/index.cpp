// SPDX-License-Identifier: Apache-2.0
#include "kernels/naive/index.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/naive/tasks.h"

namespace msabench::naive {
namespace {

constexpr float no_score = -std::numeric_limits<float>::infinity();

/// Over the visible tokens of the blocks in ids [topk], whose scores are in `maxima`: the keys of a block one after the
/// other, then the blocks.
float log_sum(const stages& stage, const index_call& call, const row_place& place, const float* query,
              const std::int32_t* ids, const float* maxima, const score_scratch& scratch) {
  const std::int32_t* end = std::find(ids, ids + call.rule.topk, -1);
  float maximum = no_score, sum = 0;
  for (const std::int32_t* id = ids; id != end; ++id) maximum = std::max(maximum, maxima[*id]);
  if (maximum == no_score) return no_score;
  for (const std::int32_t* id = ids; id != end; ++id) {
    const tile keys = load_index_tile(stage, call, place, *id, scratch);
    stage.block_maximum(query, call.scale, keys, scratch.scores);
    float block_sum = 0;
    for (std::int32_t i = 0; i < keys.count; ++i) block_sum += std::exp(scratch.scores[i] - maximum);
    sum += block_sum;
  }
  // The logarithm in double: the declared error is absolute, and fp32 misses it once the sum passes a few hundred.
  return static_cast<float>(maximum + std::log(static_cast<double>(sum)));
}

void index_row(const stages& stage, const index_call& call, std::int64_t row, void* slice) {
  const score_scratch memory(slice, {call.heads, call.width, call.rule.block});
  auto* maxima = static_cast<float*>(memory.rest);  // [heads][max_blocks]
  auto* candidates = reinterpret_cast<std::int32_t*>(maxima + call.heads * call.max_blocks);
  const row_place place = place_in_bounds(call, row);
  load_queries(stage, call, row, memory.queries);
  const std::int64_t visible = visible_blocks(place, call.rule.block);
  score_blocks(stage, call, {row, place, 0, visible}, memory, maxima, call.max_blocks);
  for (std::int32_t head = 0; head < call.heads; ++head) {
    const float* scores = maxima + head * call.max_blocks;
    if (call.scores != nullptr) {
      float* to = call.scores + head * call.score_head_stride + row * call.score_row_stride;
      std::copy(scores, scores + visible, to);
      std::fill(to + visible, to + call.max_blocks, no_score);
    }
    std::int32_t* ids = call.ids + row * call.id_row_stride + head * call.id_head_stride;
    stage.select_row(call.rule, place, scores, candidates, ids);
    if (call.lse != nullptr) {
      call.lse[row * call.lse_row_stride + head * call.lse_head_stride] =
          log_sum(stage, call, place, memory.queries + std::int64_t{head} * call.width, ids, scores, memory);
    }
  }
}

}  // namespace

double index_scratch_bytes(const score_sizes& sizes, std::int64_t max_blocks) {
  return score_scratch_bytes(sizes) +
         sizeof(float) * (static_cast<double>(sizes.heads) + 1) * static_cast<double>(max_blocks);
}

void index(const stages& stage, const index_call& call, int threads, void* scratch, std::int64_t slice_bytes) {
  for_each_task(call.rows.tokens(), threads, 1, scratch, slice_bytes,
                [&](std::int64_t row, void* slice) { index_row(stage, call, row, slice); });
}

}  // namespace msabench::naive

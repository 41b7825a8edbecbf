// SPDX-License-Identifier: Apache-2.0
#include "kernels/naive/select.h"

#include <algorithm>
#include <limits>

#include "kernels/naive/tasks.h"

namespace msabench::naive {

bool is_forced(const selection_rule& rule, std::int64_t visible, std::int64_t block) {
  return block < rule.initial || block >= visible - rule.local;
}

float rank_score(float score) { return score != score ? -std::numeric_limits<float>::infinity() : score; }

void select_row(const selection_rule& rule, const row_place& place, const float* scores, std::int32_t* candidates,
                std::int32_t* ids) {
  const std::int64_t visible = visible_blocks(place, rule.block);
  const std::int64_t count = std::min<std::int64_t>(visible, rule.topk);
  if (visible <= rule.topk) {
    for (std::int64_t b = 0; b < count; ++b) ids[b] = static_cast<std::int32_t>(b);
  } else {
    std::int64_t forced = 0, free = 0;
    for (std::int64_t b = 0; b < visible; ++b) {
      auto& list = is_forced(rule, visible, b) ? ids[forced++] : candidates[free++];
      list = static_cast<std::int32_t>(b);
    }
    // A total order, so the set does not depend on how nth_element works: ties go to the lower id.
    const auto better = [scores](std::int32_t a, std::int32_t b) {
      const float score_a = rank_score(scores[a]), score_b = rank_score(scores[b]);
      return score_a != score_b ? score_a > score_b : a < b;
    };
    const std::int64_t wanted = count - forced;
    std::nth_element(candidates, candidates + wanted, candidates + free, better);
    std::copy(candidates, candidates + wanted, ids + forced);
    std::sort(ids, ids + count);
  }
  std::fill(ids + count, ids + rule.topk, -1);
}

std::int64_t select_scratch_bytes(std::int64_t max_blocks) {
  return max_blocks * static_cast<std::int64_t>(sizeof(std::int32_t));
}

void select(const stages& stage, const select_call& call, int threads, void* scratch, std::int64_t slice_bytes) {
  for_each_task(call.rows.tokens() * call.heads, threads, 4, scratch, slice_bytes, [&](std::int64_t task, void* slice) {
    const std::int64_t row = task / call.heads, head = task % call.heads;
    row_place place = call.rows.place(row);
    // Lengths above the bound of the problem are the caller's fault, but no reason to read behind the scores.
    place.position = std::min(place.position, call.max_blocks * call.rule.block - 1);
    stage.select_row(call.rule, place, call.scores + head * call.score_head_stride + row * call.score_row_stride,
                     static_cast<std::int32_t*>(slice),
                     call.ids + row * call.id_row_stride + head * call.id_head_stride);
  });
}

}  // namespace msabench::naive

// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/best_blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/best_blocks.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace msabench::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// First of `count` scores above `floor`, or `count`. NaN is above nothing.
std::int64_t find_above(const float* scores, std::int64_t count, float floor) {
  const hn::ScalableTag<float> d;
  const auto floors = hn::Set(d, floor);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto first = hn::FindFirstTrue(d, hn::Gt(hn::LoadU(d, scores + i), floors));
    if (first >= 0) return i + first;
  }
  while (i < count && !(scores[i] > floor)) ++i;
  return i;
}

}  // namespace msabench::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace msabench::cpu {

HWY_EXPORT(find_above);

namespace {

/// A total order. A NaN has become -infinity before.
bool better(const scored_block& a, const scored_block& b) {
  return a.score != b.score ? a.score > b.score : a.id < b.id;
}

bool lower_id(const scored_block& a, const scored_block& b) { return a.id < b.id; }

void add(best_blocks& best, scored_block block) {
  best.chosen[best.count++] = block;
  if (best.count == best.wanted) std::make_heap(best.chosen, best.chosen + best.count, better);
}

void replace_worst(best_blocks& best, scored_block block) {
  std::pop_heap(best.chosen, best.chosen + best.count, better);
  best.chosen[best.count - 1] = block;
  std::push_heap(best.chosen, best.chosen + best.count, better);
}

}  // namespace

void offer(best_blocks& best, const float* scores, std::int64_t first_id, std::int64_t count) {
  if (best.wanted == 0) return;
  std::int64_t i = 0;
  for (; i < count && best.count < best.wanted; ++i) {
    const float score = scores[i] == scores[i] ? scores[i] : -std::numeric_limits<float>::infinity();
    add(best, {score, static_cast<std::int32_t>(first_id + i)});
  }
  while (i < count) {
    i += HWY_DYNAMIC_DISPATCH(find_above)(scores + i, count - i, best.chosen[0].score);
    if (i == count) return;
    replace_worst(best, {scores[i], static_cast<std::int32_t>(first_id + i)});
    ++i;
  }
}

void offer_sorted(best_blocks& best, scored_block* blocks, std::int32_t count) {
  std::sort(blocks, blocks + count, lower_id);
  for (std::int32_t i = 0; i < count; ++i) {
    if (best.count < best.wanted) {
      add(best, blocks[i]);
    } else if (blocks[i].score > best.chosen[0].score) {
      replace_worst(best, blocks[i]);
    }
  }
}

free_blocks free_blocks_of(const selection_rule& rule, std::int64_t visible) {
  if (visible <= rule.topk) return {0, 0, 0};
  return {rule.initial, visible - rule.initial - rule.local, rule.topk - rule.initial - rule.local};
}

void write_ids(const selection_rule& rule, std::int64_t visible, best_blocks& best, std::int32_t* ids) {
  std::int32_t* next = ids;
  const auto take = [&next](std::int64_t first, std::int64_t end) {
    for (std::int64_t b = first; b < end; ++b) *next++ = static_cast<std::int32_t>(b);
  };
  if (visible <= rule.topk) {
    take(0, visible);
  } else {
    take(0, rule.initial);
    std::sort(best.chosen, best.chosen + best.count, lower_id);
    for (std::int32_t i = 0; i < best.count; ++i) *next++ = best.chosen[i].id;
    take(visible - rule.local, visible);
  }
  std::fill(next, ids + rule.topk, -1);
}

}  // namespace msabench::cpu
#endif

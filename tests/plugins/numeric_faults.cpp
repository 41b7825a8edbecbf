// SPDX-License-Identifier: Apache-2.0
// Wrong results, each by one replaced stage of the naive kernels.
#include <algorithm>
#include <limits>

#include "kernels/common/lengths.h"
#include "kernels/naive/glue.h"
#include "kernels/naive/select.h"
#include "kernels/naive/stages.h"

namespace msabench::faults {
namespace {

using namespace naive;

constexpr float no_score = -std::numeric_limits<float>::infinity();

const msabench_plugin* with_stages(const msabench_host* host, const char* name, stages (*change)(stages)) {
  static const stages changed_stages = change(exact_stages);
  return plugin(host, name, "naive with a fault, for tests", changed_stages);
}

float maximum_without_a_key(const float* query, float scale, const tile& keys, float* scores) {
  const float maximum = exact_stages.block_maximum(query, scale, keys, scores);
  if (keys.slot != std::min(3, keys.slots - 1) || keys.count == 0) return maximum;
  scores[std::min(37, keys.count - 1)] = no_score;
  return *std::max_element(scores, scores + keys.count);
}

void select_the_next_best(const selection_rule& rule, const row_place& place, const float* scores,
                          std::int32_t* candidates, std::int32_t* ids) {
  exact_stages.select_row(rule, place, scores, candidates, ids);
  const std::int64_t visible = visible_blocks(place, rule.block);
  if (visible <= rule.topk) return;
  const auto worse = [scores](std::int32_t a, std::int32_t b) { return rank_score(scores[a]) < rank_score(scores[b]); };
  std::int32_t* worst = nullptr;
  std::int32_t best_left = -1;
  for (std::int32_t b = 0; b < visible; ++b) {
    std::int32_t* chosen = std::find(ids, ids + rule.topk, b);
    if (chosen == ids + rule.topk) {
      if (best_left < 0 || worse(best_left, b)) best_left = b;
    } else if (!is_forced(rule, visible, b) && (worst == nullptr || !worse(*worst, b))) {
      worst = chosen;
    }
  }
  if (worst == nullptr) return;  // all of them are forced
  *worst = best_left;
  std::sort(ids, ids + rule.topk);
}

std::int32_t blocks_with_a_stranger(const row_place& place, const std::int32_t* ids, std::int32_t topk,
                                    std::int32_t block_size, std::int32_t* blocks, std::int32_t capacity) {
  const std::int32_t count = exact_stages.row_blocks(place, ids, topk, block_size, blocks, capacity);
  const std::int64_t visible = visible_blocks(place, block_size);
  std::int32_t stranger = 0;
  while (std::find(blocks, blocks + count, stranger) != blocks + count) ++stranger;
  if (count > 0 && stranger < visible) blocks[count / 2] = stranger;
  return count;
}

std::int32_t visible_keys_and_the_next(const row_place& place, std::int64_t block, std::int32_t block_size) {
  // Inside the sequence: the fault is a wrong mask, not a read of memory that nobody wrote.
  const std::int64_t end = std::min(place.position + 2, place.length);
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(end - block * block_size, 0, block_size));
}

void merge_the_middle_block_twice(const weighted_sum& block, std::int32_t slot, std::int32_t slots, std::int32_t d,
                                  weighted_sum& row) {
  exact_stages.merge(block, slot, slots, d, row);
  if (slot == slots / 2) exact_stages.merge(block, slot, slots, d, row);
}

std::int32_t query_head_by_modulo(std::int32_t kv_head, std::int32_t member, std::int32_t kv_heads, std::int32_t) {
  return member * kv_heads + kv_head;
}

}  // namespace

/// attend: of every row's fourth block (the last one if it has fewer) key 37 (the last one if it sees fewer).
const msabench_plugin* drop_key(const msabench_host* host) {
  return with_stages(host, "drop_key", [](stages s) {
    s.block_maximum = maximum_without_a_key;
    return s;
  });
}

/// select: the worst block that was chosen for its score gives way to the best one that was not.
const msabench_plugin* swap_block(const msabench_host* host) {
  return with_stages(host, "swap_block", [](stages s) {
    s.select_row = select_the_next_best;
    return s;
  });
}

/// attend: the middle one of a row's blocks is replaced by the first visible block that is not among them.
const msabench_plugin* attend_swap_block(const msabench_host* host) {
  return with_stages(host, "attend_swap_block", [](stages s) {
    s.row_blocks = blocks_with_a_stranger;
    return s;
  });
}

/// attend: a row sees the key after its own position, where its block and the sequence have one.
const msabench_plugin* mask_off_by_one(const msabench_host* host) {
  return with_stages(host, "mask_off_by_one", [](stages s) {
    s.visible_keys = visible_keys_and_the_next;
    return s;
  });
}

/// attend: the middle one of a row's blocks counts twice.
const msabench_plugin* double_block(const msabench_host* host) {
  return with_stages(host, "double_block", [](stages s) {
    s.merge = merge_the_middle_block_twice;
    return s;
  });
}

/// attend: query head h uses KV head h % Hkv.
const msabench_plugin* wrong_kv_head(const msabench_host* host) {
  return with_stages(host, "wrong_kv_head", [](stages s) {
    s.query_head = query_head_by_modulo;
    return s;
  });
}

}  // namespace msabench::faults

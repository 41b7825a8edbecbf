// SPDX-License-Identifier: Apache-2.0
// Wrong results, each by one replaced stage of the naive kernels.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "kernels/common/lengths.h"
#include "kernels/common/storage.h"
#include "kernels/naive/glue.h"
#include "kernels/naive/select.h"
#include "kernels/naive/stages.h"
#include "tests/plugins/fault.h"

namespace msabench::faults {
namespace {

using namespace naive;

constexpr float no_score = -std::numeric_limits<float>::infinity();

float maximum_without_a_key(const float* query, float scale, const tile& keys, float* scores) {
  const float maximum = exact_stages.block_maximum(query, scale, keys, scores);
  if (keys.slot != std::min(3, keys.slots - 1) || keys.count == 0) return maximum;
  scores[std::min(37, keys.count - 1)] = no_score;
  return *std::max_element(scores, scores + keys.count);
}

float maximum_without_the_heaviest_key(const float* query, float scale, const tile& keys, float* scores) {
  exact_stages.block_maximum(query, scale, keys, scores);
  if (keys.count == 0) return no_score;
  *std::max_element(scores, scores + keys.count) = no_score;
  return *std::max_element(scores, scores + keys.count);
}

float bf16_of(float value) {
  std::uint16_t stored = 0;
  store_row(&value, 1, bf16_type, &stored);
  load_row(&stored, bf16_type, 1, &value);
  return value;
}

void attend_block_in_16_bits(const float* scores, float maximum, const tile& values, weighted_sum& sum) {
  exact_stages.attend_block(scores, maximum, values, sum);  // of it only the weight stands
  for (std::int32_t c = 0; c < values.d; ++c) {
    sum.values[c] = 0;
    for (std::int32_t i = 0; i < values.count; ++i) {
      const float weight = std::exp(scores[i] - maximum);
      sum.values[c] = bf16_of(sum.values[c] + weight * values.rows[static_cast<std::int64_t>(i) * values.d + c]);
    }
  }
}

void merge_in_16_bits(const weighted_sum& block, std::int32_t slot, std::int32_t slots, std::int32_t d,
                      weighted_sum& row) {
  exact_stages.merge(block, slot, slots, d, row);
  for (std::int32_t c = 0; c < d; ++c) row.values[c] = bf16_of(row.values[c]);
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

std::int32_t next_index_head(std::int32_t kv_head, std::int32_t kv_heads) { return (kv_head + 1) % kv_heads; }

/// The mask comes after the maximum: keys of the future that exist count.
std::int32_t all_keys_of_the_block(const row_place& place, std::int64_t block, std::int32_t block_size) {
  const bool visible = block * block_size <= place.position;
  return visible ? static_cast<std::int32_t>(std::min<std::int64_t>(place.length - block * block_size, block_size)) : 0;
}

float maximum_with_relu(const float* query, float scale, const tile& keys, float* scores) {
  const float maximum = exact_stages.block_maximum(query, scale, keys, scores);
  return keys.count > 0 ? std::max(maximum, 0.0f) : maximum;
}

float maximum_without_scale(const float* query, float, const tile& keys, float* scores) {
  return exact_stages.block_maximum(query, 1, keys, scores);
}

float maximum_where_nan_wins(const float* query, float scale, const tile& keys, float* scores) {
  const float maximum = exact_stages.block_maximum(query, scale, keys, scores);
  const bool any = std::any_of(scores, scores + keys.count, [](float s) { return s != s; });
  return any ? std::numeric_limits<float>::infinity() : maximum;
}

float maximum_below_a_sentinel(const float* query, float scale, const tile& keys, float* scores) {
  return std::min(exact_stages.block_maximum(query, scale, keys, scores), 1e30f);
}

float to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return value != value ? value : std::bit_cast<float>((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
}

float maximum_of_short_sums(const float* query, float scale, const tile& keys, float* scores) {
  float maximum = no_score;
  for (std::int32_t i = 0; i < keys.count; ++i) {
    float sum = 0;
    for (std::int32_t c = 0; c < keys.d; ++c)
      sum = to_bf16(sum + query[c] * keys.rows[static_cast<std::int64_t>(i) * keys.d + c]);
    scores[i] = sum * scale;
    if (scores[i] > maximum) maximum = scores[i];
  }
  return maximum;
}

void select_the_higher_of_equals(const selection_rule& rule, const row_place& place, const float* scores,
                                 std::int32_t* candidates, std::int32_t* ids) {
  exact_stages.select_row(rule, place, scores, candidates, ids);
  const std::int64_t visible = visible_blocks(place, rule.block);
  if (visible <= rule.topk) return;
  // One of the chosen for the last block with its score that was not.
  for (std::int32_t slot = 0; slot < rule.topk; ++slot)
    for (std::int64_t b = visible - 1; b > ids[slot]; --b)
      if (!is_forced(rule, visible, ids[slot]) && rank_score(scores[b]) == rank_score(scores[ids[slot]]) &&
          std::find(ids, ids + rule.topk, b) == ids + rule.topk) {
        ids[slot] = static_cast<std::int32_t>(b);
        std::sort(ids, ids + rule.topk);
        return;
      }
}

std::int32_t query_head_by_modulo(std::int32_t kv_head, std::int32_t member, std::int32_t kv_heads, std::int32_t) {
  return member * kv_heads + kv_head;
}

float no_scale(const cache&, std::int64_t, std::int64_t, std::int64_t) { return 1; }

float scale_of_next_head(const cache& from, std::int64_t sequence, std::int64_t head, std::int64_t j) {
  return exact_stages.token_scale(from, sequence, from.scale.heads > 0 ? (head + 1) % from.scale.heads : head, j);
}

float scale_of_the_page(const cache& from, std::int64_t sequence, std::int64_t head, std::int64_t j) {
  return exact_stages.token_scale(from, sequence, head, from.page_size > 0 ? j - j % from.page_size : j);
}

void attend_row_with_exchanged_scales(const stages& stage, const attend_call& call, std::int64_t row,
                                      std::int32_t kv_head, void* memory) {
  attend_call exchanged = call;
  std::swap(exchanged.keys.scale, exchanged.values.scale);
  exact_stages.attend_row(stage, exchanged, row, kv_head, memory);
}

/// To 4 significant bits, in the normal range of e4m3.
float e4m3_of(float value) {
  int exponent = 0;
  const float fraction = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, 4)), exponent - 4);
}

void attend_block_rounded_again(const float* scores, float maximum, const tile& values, weighted_sum& sum) {
  exact_stages.attend_block(scores, maximum, values, sum);  // of it only the weight stands
  std::fill(sum.values, sum.values + values.d, 0.0f);
  for (std::int32_t i = 0; i < values.count; ++i) {
    const float weight = std::exp(scores[i] - maximum);
    for (std::int32_t c = 0; c < values.d; ++c)
      sum.values[c] += weight * e4m3_of(values.rows[static_cast<std::int64_t>(i) * values.d + c]);
  }
}

}  // namespace

/// attend, dense: of every row's fourth block (the last one if it has fewer) key 37 (the last one if it sees fewer). score and
/// index: the same of every block.
const msabench_plugin* drop_key(const msabench_host* host) {
  return with_stages(host, "drop_key", [](stages s) {
    s.block_maximum = maximum_without_a_key;
    return s;
  });
}

/// attend, dense: of every block the key of the highest score.
const msabench_plugin* drop_heavy_key(const msabench_host* host) {
  return with_stages(host, "drop_heavy_key", [](stages s) {
    s.block_maximum = maximum_without_the_heaviest_key;
    return s;
  });
}

/// attend, dense: weighted values are added up in bf16.
const msabench_plugin* accumulate_16bit(const msabench_host* host) {
  return with_stages(host, "accumulate_16bit", [](stages s) {
    s.attend_block = attend_block_in_16_bits;
    s.merge = merge_in_16_bits;
    return s;
  });
}

/// select and index: the worst block that was chosen for its score gives way to the best one that was not.
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

/// attend, dense, score and index: a row sees the key after its own position, where its block and the sequence have one.
const msabench_plugin* mask_off_by_one(const msabench_host* host) {
  return with_stages(host, "mask_off_by_one", [](stages s) {
    s.visible_keys = visible_keys_and_the_next;
    return s;
  });
}

/// attend, dense: the middle one of a row's blocks counts twice.
const msabench_plugin* double_block(const msabench_host* host) {
  return with_stages(host, "double_block", [](stages s) {
    s.merge = merge_the_middle_block_twice;
    return s;
  });
}

/// attend, dense: query head h uses KV head h % Hkv.
const msabench_plugin* wrong_kv_head(const msabench_host* host) {
  return with_stages(host, "wrong_kv_head", [](stages s) {
    s.query_head = query_head_by_modulo;
    return s;
  });
}

/// score and index: blocks of KV head h are scored by the query of index head h + 1.
const msabench_plugin* wrong_index_head(const msabench_host* host) {
  return with_stages(host, "wrong_index_head", [](stages s) {
    s.index_head = next_index_head;
    return s;
  });
}

/// score and index: the own block is scored by its future keys too.
const msabench_plugin* mask_after_max(const msabench_host* host) {
  return with_stages(host, "mask_after_max", [](stages s) {
    s.visible_keys = all_keys_of_the_block;
    return s;
  });
}

/// score and index: no score is negative.
const msabench_plugin* relu_scores(const msabench_host* host) {
  return with_stages(host, "relu_scores", [](stages s) {
    s.block_maximum = maximum_with_relu;
    return s;
  });
}

/// score: index_scale is left out.
const msabench_plugin* unscaled_scores(const msabench_host* host) {
  return with_stages(host, "unscaled_scores", [](stages s) {
    s.block_maximum = maximum_without_scale;
    return s;
  });
}

/// score and index: a NaN key makes its block the best.
const msabench_plugin* nan_wins(const msabench_host* host) {
  return with_stages(host, "nan_wins", [](stages s) {
    s.block_maximum = maximum_where_nan_wins;
    return s;
  });
}

/// score and index: no score is above 1e30.
const msabench_plugin* clamped_scores(const msabench_host* host) {
  return with_stages(host, "clamped_scores", [](stages s) {
    s.block_maximum = maximum_below_a_sentinel;
    return s;
  });
}

/// score: products are added up in bf16.
const msabench_plugin* short_scores(const msabench_host* host) {
  return with_stages(host, "short_scores", [](stages s) {
    s.block_maximum = maximum_of_short_sums;
    return s;
  });
}

/// select and index: of blocks with equal scores the higher id is taken.
const msabench_plugin* ties_high(const msabench_host* host) {
  return with_stages(host, "ties_high", [](stages s) {
    s.select_row = select_the_higher_of_equals;
    return s;
  });
}

/// All operators with e4m3 operands: stored keys and values are taken for the values themselves.
const msabench_plugin* forgets_scale(const msabench_host* host) {
  return with_stages(host, "forgets_scale", [](stages s) {
    s.token_scale = no_scale;
    return s;
  });
}

/// attend, dense: the scales of the next KV head.
const msabench_plugin* next_heads_scale(const msabench_host* host) {
  return with_stages(host, "next_heads_scale", [](stages s) {
    s.token_scale = scale_of_next_head;
    return s;
  });
}

/// All operators with e4m3 operands in pages: the scale of a page's first token for all of its tokens.
const msabench_plugin* pages_scale(const msabench_host* host) {
  return with_stages(host, "pages_scale", [](stages s) {
    s.token_scale = scale_of_the_page;
    return s;
  });
}

/// attend, dense: keys have the scales of values, and values those of keys.
const msabench_plugin* others_scale(const msabench_host* host) {
  return with_stages(host, "others_scale", [](stages s) {
    s.attend_row = attend_row_with_exchanged_scales;
    return s;
  });
}

/// attend, dense: scaled values are rounded to e4m3 once more.
const msabench_plugin* rounds_again(const msabench_host* host) {
  return with_stages(host, "rounds_again", [](stages s) {
    s.attend_block = attend_block_rounded_again;
    return s;
  });
}

}  // namespace msabench::faults

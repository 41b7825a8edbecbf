// SPDX-License-Identifier: Apache-2.0
// Block scores gone wrong, in score and in what selects by them.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/mutants/mutant.h"

namespace msabench::mutants {
namespace {

constexpr float no_score = -std::numeric_limits<float>::infinity();

bool any_nan(const float* scores, std::int32_t count) {
  return std::any_of(scores, scores + count, [](float s) { return s != s; });
}

float maximum_with_relu(const float* query, float scale, const tile& keys, float* scores) {
  const float maximum = exact_stages.block_maximum(query, scale, keys, scores);
  return keys.count > 0 ? std::max(maximum, 0.0f) : maximum;
}

/// The mask comes after the maximum: keys of the future that exist count.
std::int32_t all_keys_of_the_block(const row_place& place, std::int64_t block, std::int32_t block_size) {
  const bool visible = block * block_size <= place.position;
  return visible ? static_cast<std::int32_t>(std::min<std::int64_t>(place.length - block * block_size, block_size)) : 0;
}

float maximum_where_nan_wins(const float* query, float scale, const tile& keys, float* scores) {
  const float maximum = exact_stages.block_maximum(query, scale, keys, scores);
  return any_nan(scores, keys.count) ? std::numeric_limits<float>::infinity() : maximum;
}

float maximum_below_a_sentinel(const float* query, float scale, const tile& keys, float* scores) {
  return std::min(exact_stages.block_maximum(query, scale, keys, scores), 1e30f);
}

float bf16_of(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return value != value ? value : std::bit_cast<float>((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
}

float maximum_of_short_sums(const float* query, float scale, const tile& keys, float* scores) {
  float maximum = no_score;
  for (std::int32_t i = 0; i < keys.count; ++i) {
    float sum = 0;
    for (std::int32_t c = 0; c < keys.d; ++c)
      sum = bf16_of(sum + query[c] * keys.rows[static_cast<std::int64_t>(i) * keys.d + c]);
    scores[i] = sum * scale;
    if (scores[i] > maximum) maximum = scores[i];
  }
  return maximum;
}

/// Keys that the block has no more are zeros in the tile, and score 0.
float maximum_with_zero_keys(const float* query, float scale, const tile& keys, float* scores) {
  const float maximum = exact_stages.block_maximum(query, scale, keys, scores);
  constexpr std::int32_t tile_keys = 16;
  return keys.count % tile_keys == 0 ? maximum : std::max(maximum, 0.0f);
}

std::int32_t all_slots_of_the_page(const row_place& place, std::int64_t block, std::int32_t block_size) {
  return block * block_size <= place.position ? block_size : 0;
}

constexpr mutant mutants[] = {
    {"IDX-1.a", "one index head chooses the blocks of every KV head",
     [](stages& s) { s.index_head = [](std::int32_t, std::int32_t) { return 0; }; }, nullptr},
    {"IDX-1.b", "blocks of KV head h are chosen by index head h + 1",
     [](stages& s) {
       s.index_head = [](std::int32_t kv_head, std::int32_t kv_heads) { return (kv_head + 1) % kv_heads; };
     },
     nullptr},
    {"SEL-2.d", "no score is above the sentinel 1e30", [](stages& s) { s.block_maximum = maximum_below_a_sentinel; },
     nullptr},
    {"SEL-3.a", "ReLU on index scores: none is negative", [](stages& s) { s.block_maximum = maximum_with_relu; },
     nullptr},
    {"SEL-4.a", "the causal bound comes after the maximum: future keys of the own block count",
     [](stages& s) { s.visible_keys = all_keys_of_the_block; }, nullptr},
    {"SEL-9.a", "a NaN key makes its block the best", [](stages& s) { s.block_maximum = maximum_where_nan_wins; },
     nullptr},
    {"PREC-1.a", "products of scores are added up in bf16", [](stages& s) { s.block_maximum = maximum_of_short_sums; },
     nullptr},
    {"PREC-2.e", "index_scale is left out",
     [](stages& s) {
       s.block_maximum = [](const float* query, float, const tile& keys, float* scores) {
         return exact_stages.block_maximum(query, 1, keys, scores);
       };
     },
     nullptr},
    {"TAIL-1.a", "keys past the last one are scored as zeros",
     [](stages& s) { s.block_maximum = maximum_with_zero_keys; }, nullptr},
    {"TAIL-1.b", "keys past the last one are scored by what their slots hold",
     [](stages& s) { s.visible_keys = all_slots_of_the_page; }, nullptr},
};

}  // namespace

std::span<const mutant> score_mutants() { return mutants; }

}  // namespace msabench::mutants

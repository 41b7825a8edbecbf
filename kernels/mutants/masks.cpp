// SPDX-License-Identifier: Apache-2.0
// Attention to keys that a row does not see, or not to all that it sees.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/mutants/mutant.h"

namespace msabench::mutants {
namespace {

constexpr float no_score = -std::numeric_limits<float>::infinity();

/// Keys of the block that the sequence has.
std::int32_t existing_keys(const row_place& place, std::int64_t block, std::int32_t block_size) {
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(place.length - block * block_size, 0, block_size));
}

std::int32_t keys_and_the_next(const row_place& place, std::int64_t block, std::int32_t block_size) {
  // Inside the sequence: the fault is a wrong mask, not a read of memory that nobody wrote.
  const std::int64_t end = std::min(place.position + 2, place.length);
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(end - block * block_size, 0, block_size));
}

std::int32_t keys_before_own(const row_place& place, std::int64_t block, std::int32_t block_size) {
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(place.position - block * block_size, 0, block_size));
}

std::int32_t keys_by_offset(const row_place& place, std::int64_t block, std::int32_t block_size) {
  const auto offset = static_cast<std::int32_t>(place.position % block_size);
  return std::min(exact_stages.visible_keys(place, block, block_size), offset + 1);
}

std::int32_t keys_without_mask(const row_place& place, std::int64_t block, std::int32_t block_size) {
  return place.position < 0 ? 0 : existing_keys(place, block, block_size);
}

bool is_cut_short(const row_place& place, std::int64_t block, std::int32_t block_size) {
  return existing_keys(place, block, block_size) < block_size;
}

std::int32_t keys_of_whole_blocks(const row_place& place, std::int64_t block, std::int32_t block_size) {
  return is_cut_short(place, block, block_size) ? 0 : exact_stages.visible_keys(place, block, block_size);
}

std::int32_t keys_and_the_rest_of_the_page(const row_place& place, std::int64_t block, std::int32_t block_size) {
  return place.position >= 0 && is_cut_short(place, block, block_size)
             ? block_size
             : exact_stages.visible_keys(place, block, block_size);
}

/// Of the tile that a thread works on: its first keys are visible, the others are masked. visible_keys is called for a tile
/// before its scores and before its values.
thread_local std::int32_t shown = 0;

/// `count` keys of the block, of which the visible ones are shown.
template <std::int32_t (*Count)(const row_place&, std::int64_t, std::int32_t)>
std::int32_t keys_with_masked_ones(const row_place& place, std::int64_t block, std::int32_t block_size) {
  shown = exact_stages.visible_keys(place, block, block_size);
  return Count(place, block, block_size);
}

/// Scores of the masked keys are replaced.
float maximum_with_mask(const float* query, float scale, const tile& keys, float* scores, float mask) {
  tile visible = keys;
  visible.count = std::min(shown, keys.count);
  const float maximum = exact_stages.block_maximum(query, scale, visible, scores);
  std::fill(scores + visible.count, scores + keys.count, mask);
  return visible.count < keys.count ? std::max(maximum, mask) : maximum;
}

/// Padding of a tile of 16 keys is attended to, with key and value 0.
void attend_to_padding(const float* scores, float maximum, const tile& values, weighted_sum& sum) {
  exact_stages.attend_block(scores, maximum, values, sum);
  constexpr std::int32_t tile_keys = 16;
  const std::int32_t padding = (tile_keys - values.count % tile_keys) % tile_keys;
  if (values.count > 0) sum.weight += static_cast<float>(padding) * std::exp(0 - maximum);
}

/// A block without a visible key is a maximum of -infinity, and exp(-infinity - -infinity) the factor of what comes after.
std::int32_t blocks_with_invisible_ones(const row_place& place, const std::int32_t* ids, std::int32_t topk,
                                        std::int32_t block_size, std::int32_t* blocks, std::int32_t capacity) {
  const std::int32_t count = exact_stages.row_blocks(place, ids, topk, block_size, blocks, capacity);
  shown = topk > 0 && ids[0] >= visible_blocks(place, block_size) ? 0 : 1;
  return count;
}

void attend_after_masked_chunk(const float* scores, float maximum, const tile& values, weighted_sum& sum) {
  exact_stages.attend_block(scores, maximum, values, sum);
  if (shown == 0) sum.weight = std::numeric_limits<float>::quiet_NaN();
}

constexpr mutant mutants[] = {
    {"CAUS-2.a", "a row sees the key after its own", [](stages& s) { s.visible_keys = keys_and_the_next; }, nullptr},
    {"CAUS-2.b", "a row does not see its own key", [](stages& s) { s.visible_keys = keys_before_own; }, nullptr},
    {"CAUS-3.a", "offsets in the block compared instead of positions: every block is masked like the own one",
     [](stages& s) { s.visible_keys = keys_by_offset; }, nullptr},
    {"CAUS-3.b", "offsets in the block compared instead of positions: no block is masked",
     [](stages& s) { s.visible_keys = keys_without_mask; }, nullptr},
    {"TAIL-1.c", "keys past the last one attended to as zeros", [](stages& s) { s.attend_block = attend_to_padding; },
     nullptr},
    {"TAIL-2.a", "the last, partial block is skipped", [](stages& s) { s.visible_keys = keys_of_whole_blocks; },
     nullptr},
    {"TAIL-2.b", "the last, partial block is read whole",
     [](stages& s) { s.visible_keys = keys_and_the_rest_of_the_page; }, nullptr},
    {"TAIL-3.a", "0 times what unused slots of V hold",
     [](stages& s) {
       s.visible_keys = keys_with_masked_ones<keys_and_the_rest_of_the_page>;
       s.block_maximum = [](const float* query, float scale, const tile& keys, float* scores) {
         return maximum_with_mask(query, scale, keys, scores, no_score);
       };
     },
     nullptr},
    {"ROW-2.a", "masked keys have the score -1e4 instead of -infinity",
     [](stages& s) {
       s.visible_keys = keys_with_masked_ones<keys_without_mask>;
       s.block_maximum = [](const float* query, float scale, const tile& keys, float* scores) {
         return maximum_with_mask(query, scale, keys, scores, -1e4f);
       };
     },
     nullptr},
    {"ROW-3.a", "a masked block at the front leaves a maximum of -infinity, from which -infinity is subtracted",
     [](stages& s) {
       s.row_blocks = blocks_with_invisible_ones;
       s.attend_block = attend_after_masked_chunk;
     },
     nullptr},
};

}  // namespace

std::span<const mutant> mask_mutants() { return mutants; }

}  // namespace msabench::mutants

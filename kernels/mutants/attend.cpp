// SPDX-License-Identifier: Apache-2.0
// Attention over other blocks or heads than those due, and rows that come to nothing.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/common/storage.h"
#include "kernels/mutants/mutant.h"

namespace msabench::mutants {
namespace {

constexpr float no_score = -std::numeric_limits<float>::infinity();

/// -1 is an id like the others: the block before the first one is read whole.
std::int32_t blocks_with_minus_one(const row_place& place, const std::int32_t* ids, std::int32_t topk,
                                   std::int32_t block_size, std::int32_t* blocks, std::int32_t capacity) {
  const std::int32_t count = exact_stages.row_blocks(place, ids, topk, block_size, blocks, capacity);
  if (place.position < 0 || count == capacity || std::find(ids, ids + topk, -1) == ids + topk) return count;
  blocks[count] = -1;
  return count + 1;
}

/// As many ids as the longest row of the batch has: the slots behind those of the row, which hold -1, mean block 0.
std::int32_t blocks_of_all_slots(const row_place& place, const std::int32_t* ids, std::int32_t topk,
                                 std::int32_t block_size, std::int32_t* blocks, std::int32_t capacity) {
  std::int32_t count = exact_stages.row_blocks(place, ids, topk, block_size, blocks, capacity);
  for (std::int32_t slot = 0; slot < topk && place.position >= 0 && count < capacity; ++slot)
    if (ids[slot] == -1) blocks[count++] = 0;
  return count;
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

/// A negative length as a number without sign: the row is past the end of its sequence, and sees all of it.
row_place seen_as_unsigned(const row_place& place) {
  row_place wrapped = place;
  if (place.position < 0) wrapped.position = place.length - 1;
  return wrapped;
}

std::int32_t blocks_of_unsigned(const row_place& place, const std::int32_t* ids, std::int32_t topk,
                                std::int32_t block_size, std::int32_t* blocks, std::int32_t capacity) {
  if (place.position >= 0) return exact_stages.row_blocks(place, ids, topk, block_size, blocks, capacity);
  return exact_stages.all_blocks(seen_as_unsigned(place), block_size, blocks, std::min(capacity, topk));
}

constexpr std::int32_t tile_rows = 4;

/// The first row of the tile of four that a row lies in, among those of its sequence.
std::int64_t first_of_tile(const lengths& rows, std::int64_t row) {
  const std::int64_t first = rows.cu_seqlens_q[rows.place(row).sequence];
  return first + (row - first) / tile_rows * tile_rows;
}

void attend_by_ids_of_tile(const stages& stage, const attend_call& call, std::int64_t row, std::int32_t kv_head,
                           void* scratch) {
  attend_call shared = call;
  if (call.ids != nullptr) shared.ids -= (row - first_of_tile(call.rows, row)) * call.id_row_stride;
  exact_stages.attend_row(stage, shared, row, kv_head, scratch);
}

/// Ids count pages. No larger than a block: the scratch is for those.
void attend_to_pages(const stages& stage, const attend_call& call, std::int64_t row, std::int32_t kv_head,
                     void* scratch) {
  attend_call paged = call;
  if (call.keys.block_table != nullptr)
    paged.block = static_cast<std::int32_t>(std::min<std::int64_t>(call.keys.page_size, call.block));
  exact_stages.attend_row(stage, paged, row, kv_head, scratch);
}

std::int32_t head_by_modulo(std::int32_t kv_head, std::int32_t member, std::int32_t kv_heads, std::int32_t) {
  return member * kv_heads + kv_head;
}

std::int32_t head_by_modulo_of_six(std::int32_t kv_head, std::int32_t member, std::int32_t kv_heads,
                                   std::int32_t group) {
  return kv_heads * group == 6 ? head_by_modulo(kv_head, member, kv_heads, group)
                               : exact_stages.query_head(kv_head, member, kv_heads, group);
}

template <int Value>
void store_constant(const weighted_sum& row, float maximum, const output_row& to) {
  exact_stages.store(row, maximum, to);
  std::fill(row.values, row.values + to.d, static_cast<float>(Value));
  if (maximum != no_score) store_row(row.values, to.d, to.type, to.out);
}

void store_nan_for_nothing(const weighted_sum& row, float maximum, const output_row& to) {
  exact_stages.store(row, maximum, to);
  if (maximum != no_score) return;
  std::fill(row.values, row.values + to.d, std::numeric_limits<float>::quiet_NaN());
  store_row(row.values, to.d, to.type, to.out);
}

void store_unless_nothing(const weighted_sum& row, float maximum, const output_row& to) {
  if (maximum != no_score) exact_stages.store(row, maximum, to);
}

void store_finite_lse_for_nothing(const weighted_sum& row, float maximum, const output_row& to) {
  exact_stages.store(row, maximum, to);
  if (maximum == no_score && to.lse != nullptr) *to.lse = -1e30f;
}

constexpr mutant mutants[] = {
    {"IDX-4.a", "-1 used as a block id in a load", [](stages& s) { s.row_blocks = blocks_with_minus_one; }, nullptr},
    {"IDX-5.a", "the ids of the first query of a tile of 4 for all of them",
     [](stages& s) { s.attend_row = attend_by_ids_of_tile; }, nullptr},
    {"IDX-6.b", "as many ids as the longest row has, -1 among them, which mean block 0",
     [](stages& s) { s.row_blocks = blocks_of_all_slots; }, nullptr},
    {"IDX-7.a", "ids count pages instead of blocks", [](stages& s) { s.attend_row = attend_to_pages; }, nullptr},
    {"IDX-5.b", "a block that was not selected in place of one that was",
     [](stages& s) { s.row_blocks = blocks_with_a_stranger; }, nullptr},
    {"GQA-1.a", "query head h attends to KV head h modulo Hkv instead of h / G",
     [](stages& s) { s.query_head = head_by_modulo; }, nullptr},
    {"GQA-2.b", "head and group exchanged where there are 6 query heads",
     [](stages& s) { s.query_head = head_by_modulo_of_six; }, nullptr},
    {"ROW-1.a", "0 / 0 in rows that see no key", [](stages& s) { s.store = store_nan_for_nothing; }, nullptr},
    {"ROW-1.b", "rows that see no key are left as they were", [](stages& s) { s.store = store_unless_nothing; },
     nullptr},
    {"ROW-1.c", "lse is -1e30 instead of -infinity in rows that see no key",
     [](stages& s) { s.store = store_finite_lse_for_nothing; }, nullptr},
    {"LAUNCH-1.b", "a negative length read as unsigned: padding rows see the whole sequence",
     [](stages& s) {
       s.row_blocks = blocks_of_unsigned;
       s.visible_keys = [](const row_place& place, std::int64_t block, std::int32_t block_size) {
         return exact_stages.visible_keys(seen_as_unsigned(place), block, block_size);
       };
     },
     nullptr},
    {"ZERO-1.a", "out is 0, whatever the inputs are", [](stages& s) { s.store = store_constant<0>; }, nullptr},
    {"ZERO-1.b", "out is 1, whatever the inputs are", [](stages& s) { s.store = store_constant<1>; }, nullptr},
};

}  // namespace

std::span<const mutant> attend_mutants() { return mutants; }

}  // namespace msabench::mutants

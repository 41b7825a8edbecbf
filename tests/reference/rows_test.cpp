// SPDX-License-Identifier: Apache-2.0
#include "reference/rows.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <vector>

#include "core/error.h"

namespace msabench::reference {
namespace {

tensor_view ints(const std::vector<std::int32_t>& values) { return {values.data(), packed(i32, {std::ssize(values)})}; }

// Empty sequences at the front, in the middle and at the end; a prefix; a padding row; a sequence without query tokens.
const std::vector<std::int32_t> cu{0, 0, 3, 3, 4, 4, 6, 6};
const std::vector<std::int32_t> lens{0, 130, 77, 0, 5, 2, 0};

TEST(rows, places_of_a_ragged_batch) {
  const row_map map(ints(cu), ints(lens));
  ASSERT_EQ(map.total_rows(), 6);
  const std::array<std::array<std::int64_t, 3>, 6> want{
      {{1, 127, 130}, {1, 128, 130}, {1, 129, 130}, {3, -1, 0}, {5, 0, 2}, {5, 1, 2}}};
  for (std::int64_t row = 0; row < 6; ++row) {
    const auto& [sequence, position, kv_len] = want[static_cast<std::size_t>(row)];
    EXPECT_EQ(map[row].sequence, sequence) << row;
    EXPECT_EQ(map[row].position, position) << row;
    EXPECT_EQ(map[row].kv_len, kv_len) << row;
    const row_place place = place_of(ints(cu), ints(lens), row);
    EXPECT_EQ(place.sequence, sequence) << row;
    EXPECT_EQ(place.position, position) << row;
    EXPECT_EQ(place.kv_len, kv_len) << row;
  }
}

TEST(rows, visible_blocks_and_keys_end_at_the_position) {
  const row_map map(ints(cu), ints(lens));
  EXPECT_EQ(map.visible_blocks(0, 128), 1);
  EXPECT_EQ(map.visible_blocks(1, 128), 2);
  EXPECT_EQ(map.visible_keys(0), 128);
  EXPECT_EQ(map.visible_keys(1), 129);
  EXPECT_EQ(map.visible_blocks(3, 128), 0);
  EXPECT_EQ(map.visible_keys(3), 0);
  EXPECT_EQ(map.visible_blocks(4, 16), 1);
}

TEST(rows, keys_of_blocks_are_those_of_a_set_as_far_as_visible) {
  constexpr std::int32_t least = std::numeric_limits<std::int32_t>::min(), most = ~least;
  const auto keys_of = [](std::vector<std::int32_t> ids, const row_place& place) {
    std::vector<std::int64_t> keys{77};
    find_block_keys(ids, place, 4, keys);
    return keys;
  };
  const row_place place{0, 9, 30};  // sees blocks 0, 1 and half of 2
  const std::vector<std::int64_t> first{0, 1, 2, 3}, own{8, 9}, both{0, 1, 2, 3, 8, 9}, none;
  EXPECT_EQ(keys_of({0, -1, -1}, place), first);
  EXPECT_EQ(keys_of({2}, place), own);
  EXPECT_EQ(keys_of({2, 0, 2, -1, 3, least, most, 0}, place), both);
  EXPECT_EQ(keys_of({-1, 3, 7}, place), none);
  EXPECT_EQ(keys_of({0, 1}, {0, -2, 5}), none);
  EXPECT_EQ(keys_of({}, place), none);
}

TEST(rows, more_query_tokens_than_keys_make_padding_rows) {
  const std::vector<std::int32_t> four{0, 4}, two{2};
  const row_map map(ints(four), ints(two));
  EXPECT_EQ(map[0].position, -2);
  EXPECT_EQ(map.visible_blocks(1, 16), 0);
  EXPECT_EQ(map.visible_keys(2), 1);
  EXPECT_EQ(map.visible_keys(3), 2);
}

TEST(rows, empty_batches_have_no_rows) {
  const std::vector<std::int32_t> zero{0}, none, two_zeros{0, 0}, five{5};
  EXPECT_EQ(row_map(ints(zero), ints(none)).total_rows(), 0);
  EXPECT_EQ(row_map(ints(two_zeros), ints(five)).total_rows(), 0);
}

TEST(rows, what_is_no_row_and_no_batch_is_refused) {
  const row_map map(ints(cu), ints(lens));
  EXPECT_THROW(map[6], suite_error);
  EXPECT_THROW(map[-1], suite_error);
  EXPECT_THROW(place_of(ints(cu), ints(lens), 6), suite_error);
  EXPECT_THROW(place_of(ints(cu), ints(lens), -1), suite_error);
  const std::vector<std::int32_t> falling{0, 3, 2}, two{3, 3}, shifted{1, 3, 4};
  EXPECT_THROW(row_map(ints(falling), ints(two)), suite_error);
  EXPECT_THROW(row_map(ints(shifted), ints(two)), suite_error);
  EXPECT_THROW(row_map(ints(cu), ints(two)), suite_error);
}

TEST(rows, cache_offsets_follow_layout_table_and_strides) {
  problem p;
  p.hkv = 3, p.d = 8;
  const std::vector<std::int32_t> cu_kv{0, 10, 30};
  tensor_view cache{nullptr, packed(bf16, {30, 3, 8})}, none;
  EXPECT_EQ(cache_map(p, cache, none, ints(cu_kv)).offset(1, 4, 2), ((10 + 4) * 3 + 2) * 8);
  const tensor_view index_cache{nullptr, packed(bf16, {30, 8})};
  EXPECT_EQ(cache_map(p, index_cache, none, ints(cu_kv)).offset(1, 4, 2), (10 + 4) * 8);

  p.layout = page_layout::fused;
  p.page_size = 16;
  const std::vector<std::int32_t> table{7, 100000, 3, 9};
  const tensor_view table_view{table.data(), packed(i32, {2, 2})};
  tensor_view half{nullptr, packed(bf16, {200000, 3, 16, 16})};
  half.desc.shape[3] = 8;
  EXPECT_EQ(cache_map(p, half, table_view, none).offset(0, 17, 2), ((100000LL * 3 + 2) * 16 + 1) * 16);
  const tensor_view index_pages{nullptr, packed(bf16, {200000, 16, 8})};
  EXPECT_EQ(cache_map(p, index_pages, table_view, none).offset(1, 16, 1), (9LL * 16 + 0) * 8);
  EXPECT_THROW(cache_map(p, index_cache, table_view, none), suite_error);
}

}  // namespace
}  // namespace msabench::reference

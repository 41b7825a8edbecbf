// SPDX-License-Identifier: Apache-2.0
#include "reference/key_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "core/error.h"
#include "training_batch.h"

namespace msabench::reference {
namespace {

using testing::training_batch;
using testing::training_spec;

using read = std::tuple<std::int64_t, std::int64_t, std::int64_t>;  // row, group, row of k

training_spec ragged(std::int32_t block) {
  training_spec spec;
  spec.sequences = {{0, 0}, {3, 3}, {1, 0}, {5, 549}, {0, 40}, {2, 128}, {4, 2}, {130, 200}, {0, 0}};
  spec.block = block, spec.topk = 3;
  return spec;
}

TEST(key_map, rows_and_keys_see_the_same_pairs) {
  for (const std::int32_t block : {1, 16, 128, 200})
    for (const bool all : {false, true}) {
      const training_batch b(ragged(block));
      const auto in = b.attend();
      const key_map map(in.p, all ? tensor_view{} : in.ids, in.cu_seqlens_q, in.kv_lens, in.cu_seqlens_kv);
      EXPECT_EQ(map.rows(), b.rows());
      EXPECT_EQ(map.keys(), b.keys());
      std::set<read> want, by_row, by_key;
      std::vector<std::int64_t> found;
      for (std::int64_t row = 0; row < b.rows(); ++row)
        for (std::int64_t group = 0; group < 2; ++group) {
          for (const auto key : b.read_keys(row, group, all)) want.emplace(row, group, key);
          map.keys_of(row, group, found);
          EXPECT_TRUE(std::ranges::is_sorted(found));
          for (const auto key : found) by_row.emplace(row, group, map.first_key(map.place(row).sequence) + key);
        }
      std::set<std::int64_t> covered;
      for (const auto& tile : map.tiles()) {
        EXPECT_TRUE(tile.count > 0 && tile.count <= 128);
        for (std::int64_t j = 0; j < tile.count; ++j)
          EXPECT_TRUE(covered.insert(map.first_key(tile.sequence) + tile.first + j).second);
        for (std::int64_t group = 0; group < 2; ++group) {
          map.rows_of(tile, group, found);
          EXPECT_TRUE(std::ranges::is_sorted(found));
          for (const auto row : found)
            for (std::int64_t j = 0; j < std::min(tile.count, map.visible_in(tile, row)); ++j)
              by_key.emplace(row, group, map.first_key(tile.sequence) + tile.first + j);
        }
      }
      EXPECT_EQ(std::ssize(covered), b.keys());
      EXPECT_EQ(by_row, want) << block << all;
      EXPECT_EQ(by_key, want) << block << all;
    }
}

TEST(key_map, contradicting_lengths_are_refused) {
  const training_batch b(ragged(16));
  auto in = b.attend();
  std::vector<std::int32_t> cu{0, 0, 3, 3, 552, 592, 720, 722, 921, 922};  // one key of sequence 7 is in sequence 8
  const tensor_view wrong{cu.data(), packed(i32, {10})};
  EXPECT_THROW(key_map(in.p, in.ids, in.cu_seqlens_q, in.kv_lens, wrong), suite_error);
  cu[8] = 922;
  EXPECT_NO_THROW(key_map(in.p, in.ids, in.cu_seqlens_q, in.kv_lens, wrong));
  in.p.block = 0;
  EXPECT_THROW(key_map(in.p, in.ids, in.cu_seqlens_q, in.kv_lens, wrong), suite_error);
}

}  // namespace
}  // namespace msabench::reference

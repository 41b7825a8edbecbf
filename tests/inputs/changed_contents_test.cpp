// SPDX-License-Identifier: Apache-2.0
#include "inputs/changed_contents.h"

#include <gtest/gtest.h>

#include <numeric>

#include "inputs/batch.h"

using namespace msabench;

namespace {

input_set made(const char* name) {
  const case_spec c = parse_case(name);
  return make_inputs(c, make_problem(c));
}

std::vector<std::int32_t> ints(const input_set& set, slot where) {
  const buffer* b = set.find(where);
  const auto* first = static_cast<const std::int32_t*>(b->data());
  return {first, first + b->desc.span_elements()};
}

constexpr const char* paged = "attend/m3.tp4/rag.draft/bf16.paged/random/s0";

}  // namespace

TEST(changed_contents, reversed_sequences_keep_their_rows) {
  input_set set = made(paged);
  const auto ends = ints(set, slot::cu_seqlens_q), lens = ints(set, slot::kv_lens), ids = ints(set, slot::ids);
  const auto sum = set.inputs_checksum;
  {
    changed_contents contents(set);
    const auto rows = contents.reverse();
    ASSERT_EQ(std::ssize(rows), set.sizes.t);
    const auto new_ends = ints(set, slot::cu_seqlens_q), new_lens = ints(set, slot::kv_lens);
    const auto new_ids = ints(set, slot::ids);
    const std::size_t all = lens.size(),
                      width = ids.size() / static_cast<std::size_t>(set.find(slot::ids)->desc.shape[0]);
    for (std::size_t b = 0; b < all; ++b) {
      EXPECT_EQ(new_lens[all - 1 - b], lens[b]);
      EXPECT_EQ(new_ends[all - b] - new_ends[all - 1 - b], ends[b + 1] - ends[b]);
    }
    EXPECT_EQ(rows[0], ends.back() - ends[1]);
    for (std::size_t row = 0; row < rows.size(); ++row)
      for (std::size_t i = 0; i < width; ++i)
        EXPECT_EQ(new_ids[static_cast<std::size_t>(rows[row]) * width + i], ids[row * width + i]);
    EXPECT_NE(set.inputs_checksum, sum);
    EXPECT_EQ(set.inputs_checksum, checksum_inputs(set));
  }
  EXPECT_EQ(ints(set, slot::ids), ids);
  EXPECT_EQ(set.inputs_checksum, sum);
  EXPECT_EQ(checksum_inputs(set), sum);
}

TEST(changed_contents, rows_that_are_left_see_what_they_saw) {
  input_set one = made("attend/m3.tp4/q4.n300/bf16.paged/random/s0");
  changed_contents contents(one);
  EXPECT_EQ(contents.shorten(), 2);
  EXPECT_EQ(one.sizes.t, 2);
  EXPECT_EQ(ints(one, slot::kv_lens), std::vector<std::int32_t>{298});
  EXPECT_EQ(ints(one, slot::cu_seqlens_q), (std::vector<std::int32_t>{0, 2}));
  contents.restore();
  EXPECT_EQ(one.sizes.t, 4);
  EXPECT_TRUE(contents.reverse().empty()) << "there is one sequence";
}

TEST(changed_contents, duties_are_broken_where_there_are_any) {
  input_set set = made(paged);
  for (const duty d : every_duty) {
    changed_contents contents(set);
    EXPECT_TRUE(contents.breach(d)) << breach_of(d);
    EXPECT_NE(checksum_inputs(set), checksum_inputs(made(paged))) << breach_of(d);
  }
  EXPECT_EQ(checksum_inputs(set), set.inputs_checksum);
  input_set parts = made("combine/m3/q8.n1K/bf16/partials.random/split8/s0");
  for (const duty d : every_duty) EXPECT_FALSE(changed_contents(parts).breach(d)) << breach_of(d);
}

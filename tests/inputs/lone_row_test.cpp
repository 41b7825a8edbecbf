// SPDX-License-Identifier: Apache-2.0
// A row as a call of its own holds, at its places, what the call that it came from holds.
#include "inputs/lone_row.h"

#include <cstring>

#include "made_case.h"

namespace msabench {
namespace {

struct pair_of_calls {
  explicit pair_of_calls(std::string_view name, std::int64_t which)
      : whole(name),
        row(which),
        alone(*make_lone_row(whole.c, whole.set, lone_row_problem(whole.c, whole.p, which), which)) {
    in = alone.views();
  }
  made_case whole;
  std::int64_t row;
  input_set alone;
  std::map<slot, tensor_view> in;
};

// Bytes of the innermost lines of one row of a token tensor [T, heads, width].
void expect_same_row(const pair_of_calls& p, slot where) {
  const tensor_view &from = p.whole.view(where), &to = p.in.at(where);
  ASSERT_EQ(to.desc.shape[0], 1) << name(where);
  for (std::int64_t head = 0; head < from.desc.shape[1]; ++head)
    for (std::int64_t i = 0; i < from.desc.shape[2]; ++i) {
      const std::int64_t size = size_bytes(from.desc.type);
      EXPECT_EQ(std::memcmp(static_cast<const std::byte*>(from.data) + from.offset(p.row, head, i) * size,
                            static_cast<const std::byte*>(to.data) + to.offset(0, head, i) * size,
                            static_cast<std::size_t>(size)),
                0)
          << name(where);
    }
}

TEST(lone_row, sees_its_own_keys_through_its_own_table) {
  for (const char* layout : {"bf16.paged", "bf16.fused", "bf16.contig", "fp32.paged"})
    for (const char* option : {"", "/slack", "/stride"}) {
      const std::string name =
          std::string("attend/h8x2.d64.b32.k4.l1.i0/rag.small/") + layout + "/random" + option + "/s0";
      for (const std::int64_t row : {0, 5, 30, 40, 51}) {
        const pair_of_calls p(name, row);
        const auto& place = p.whole.rows()[static_cast<std::size_t>(row)];
        if (place.position < 0) continue;
        expect_same_row(p, slot::q);
        expect_same_row(p, slot::ids);
        EXPECT_EQ(p.in.at(slot::kv_lens).int_at(0), place.position + 1);
        EXPECT_EQ(p.in.at(slot::cu_seqlens_q).int_at(1), 1);
        EXPECT_EQ(p.alone.agreed.max_kv_len, place.position + 1);
        // Every key that the row selects is where the row alone looks for it.
        made_case alone = p.whole;
        alone.p = p.alone.agreed;
        alone.in = p.in;
        for (std::int64_t head = 0; head < 2; ++head)
          for (const std::int64_t block : p.whole.chosen(row, head))
            for (std::int64_t key = block * 32; key < std::min(block * 32 + 32, place.position + 1); ++key)
              for (const slot cache : {slot::k, slot::v})
                for (const std::int64_t channel : {0, 63})
                  ASSERT_EQ(p.whole.cache_at(cache, place.sequence, key, head, channel),
                            alone.cache_at(cache, 0, key, head, channel))
                      << name << " row " << row << " key " << key;
      }
    }
}

TEST(lone_row, shares_caches_and_leaves_the_call_as_it_was) {
  const pair_of_calls p("dense/m3.tp4/rag.draft/bf16.paged/random/s0", 9);
  EXPECT_EQ(p.alone.find(slot::k)->region.get(), p.whole.set.find(slot::k)->region.get());
  EXPECT_NE(p.alone.find(slot::q)->region.get(), p.whole.set.find(slot::q)->region.get());
  EXPECT_EQ(checksum_inputs(p.whole.set), p.whole.set.inputs_checksum);
  EXPECT_EQ(checksum_inputs(p.alone), p.alone.inputs_checksum);
}

TEST(lone_row, scores_are_those_of_the_blocks_that_it_sees) {
  const pair_of_calls p("select/m3/rag.draft/fp32/select.random/s0", 12);
  const tensor_view &from = p.whole.view(slot::scores), &to = p.in.at(slot::scores);
  const std::int64_t blocks = p.whole.rows()[12].position / 128 + 1;
  EXPECT_EQ(to.desc.shape, (std::vector<std::int64_t>{4, 1, blocks}));
  for (std::int64_t head = 0; head < 4; ++head)
    for (std::int64_t b = 0; b < blocks; ++b) EXPECT_EQ(to.at(head, 0, b), from.at(head, 12, b));
}

TEST(lone_row, has_its_parts_and_its_angles) {
  const case_spec merge = parse_case("combine/m3.tp4/rag.tails/bf16/partials.random/split16/s0");
  const input_set whole = make_inputs(merge, make_problem(merge));
  const input_set alone = *make_lone_row(merge, whole, lone_row_problem(merge, whole.agreed, 3), 3);
  const tensor_view from = whole.views().at(slot::partial_lse), to = alone.views().at(slot::partial_lse);
  EXPECT_EQ(to.desc.shape, (std::vector<std::int64_t>{16, 1, 16}));
  for (std::int64_t part = 0; part < 16; ++part) EXPECT_EQ(to.at(part, 0, 7), from.at(part, 3, 7));

  const pair_of_calls heads("qk_norm_rope/m3.tp4/rag.three/bf16/tokens.random/s0", 5);
  expect_same_row(heads, slot::k);
  const std::int64_t position = heads.whole.rows()[5].position;
  EXPECT_EQ(heads.in.at(slot::cos_sin).desc.shape[0], position + 1);
  EXPECT_EQ(heads.in.at(slot::cos_sin).at(position, 3), heads.whole.view(slot::cos_sin).at(position, 3));
}

TEST(lone_row, copies_no_more_keys_than_a_test_is_worth) {
  const made_case many("attend/m3/q1.n64K.x2/bf16.contig/random/s0");
  const auto alone = [&](std::int64_t row) {
    return make_lone_row(many.c, many.set, lone_row_problem(many.c, many.p, row), row);
  };
  EXPECT_TRUE(alone(0));   // its keys are the first ones
  EXPECT_FALSE(alone(1));  // 64 Ki x 4 x 128 values behind others
}

}  // namespace
}  // namespace msabench

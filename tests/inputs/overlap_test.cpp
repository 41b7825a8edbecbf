// SPDX-License-Identifier: Apache-2.0
// Variants shared64 and realistic of random: how much of their blocks neighbouring rows have in common.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tests/inputs/made_case.h"

namespace msabench {
namespace {

std::string attend_case(const std::string& variant) {
  return "attend/h8x2.d64.b32.k8.l1.i0/q160.n4K/bf16.paged/random" + variant + "/s0";
}

// Mean share of a row's blocks that the next row selects too.
double overlap(const made_case& m) {
  double common = 0, all = 0;
  for (std::int64_t row = 0; row + 1 < m.set.sizes.t; ++row)
    for (std::int64_t head = 0; head < m.p.hkv; ++head) {
      const auto a = m.chosen(row, head), b = m.chosen(row + 1, head);
      for (const auto block : a) common += std::ranges::find(b, block) != b.end();
      all += static_cast<double>(a.size());
    }
  return common / all;
}

TEST(Overlap, IsThatOfTheVariant) {
  const made_case apart(attend_case("")), realistic(attend_case(".realistic")), shared(attend_case(".shared64"));
  EXPECT_LT(overlap(apart), 0.3);
  EXPECT_GT(overlap(realistic), 0.6);
  EXPECT_LT(overlap(realistic), 0.95);
  EXPECT_GT(overlap(shared), 0.98);
}

TEST(Overlap, RowsHaveTheirOwnBlockAndNoneTwice) {
  for (const char* variant : {".realistic", ".shared64"}) {
    const made_case m(attend_case(variant));
    for (std::int64_t row = 0; row < m.set.sizes.t; ++row)
      for (std::int64_t head = 0; head < m.p.hkv; ++head) {
        const auto blocks = m.chosen(row, head);
        const std::int64_t own = m.rows()[static_cast<std::size_t>(row)].position / m.p.block;
        ASSERT_EQ(static_cast<std::int64_t>(blocks.size()), m.p.topk) << variant;
        EXPECT_EQ(blocks.back(), own);
        EXPECT_TRUE(std::is_sorted(blocks.begin(), blocks.end()));
        EXPECT_EQ(std::adjacent_find(blocks.begin(), blocks.end()), blocks.end());
        if (std::string(variant) == ".realistic") {
          EXPECT_EQ(blocks.front(), 0);
        }
      }
  }
}

TEST(Overlap, HeadsOfKeysDiffer) {
  for (const char* variant : {".realistic", ".shared64"}) {
    const made_case m(attend_case(variant));
    EXPECT_NE(std::vector(m.chosen(7, 0)), std::vector(m.chosen(7, 1))) << variant;
  }
}

TEST(Overlap, IndexQueriesOfNeighboursAreAlike) {
  const made_case m("index/h8x2.d64.b32.k8.l1.i0/q160.n4K/bf16.paged/random.shared64/s0");
  const tensor_view q = m.view(slot::q_idx);
  const auto* bytes = static_cast<const std::byte*>(q.data);
  const auto row_bytes = static_cast<std::size_t>(q.desc.strides[0] * size_bytes(q.desc.type));
  const auto same = [&](std::size_t a, std::size_t b) {
    return std::memcmp(bytes + a * row_bytes, bytes + b * row_bytes, row_bytes) == 0;
  };
  for (std::size_t row = 1; row < 64; ++row) EXPECT_TRUE(same(0, row));
  EXPECT_FALSE(same(63, 64));
  EXPECT_TRUE(same(64, 127));
  const made_case other("index/h8x2.d64.b32.k8.l1.i0/q160.n4K/bf16.paged/random.realistic/s0");
  std::size_t alike = 0;
  const tensor_view r = other.view(slot::q_idx);
  for (std::int64_t c = 0; c < other.p.di; ++c) alike += r.at(0, 0, c) == r.at(1, 0, c);
  EXPECT_GE(alike, static_cast<std::size_t>(other.p.di) / 2);
  EXPECT_LT(alike, static_cast<std::size_t>(other.p.di));
}

}  // namespace
}  // namespace msabench

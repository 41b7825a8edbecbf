// SPDX-License-Identifier: Apache-2.0
// Scales of e4m3 operands: what they and the stored values give together, and where they are poison.
#include <bit>
#include <cmath>
#include <set>

#include "tests/inputs/made_case.h"

namespace msabench {
namespace {

double scale_at(const made_case& m, slot s, std::int64_t b, std::int64_t key, std::int64_t head) {
  const tensor_view& scale = m.view(s);
  if (scale.desc.shape.size() == 1 && scale.desc.shape[0] == 1) return scale.at(0);
  if (!m.p.paged()) return scale.at(m.view(slot::cu_seqlens_kv).int_at(b) + key, head);
  return scale.at(m.view(slot::block_table).int_at(b, key / m.p.page_size), head, key % m.p.page_size);
}

bool is_power_of_two(double x) {
  int exponent = 0;
  return std::frexp(x, &exponent) == 0.5;
}

TEST(Scales, StandWhereTheOperatorTableHasThem) {
  const made_case token("msa/h8x2.d64.b32.k4.l1.i0/rag.small/bf16.paged/random/fp8/s0");
  EXPECT_EQ(token.p.kv, e4m3);
  EXPECT_EQ(token.p.k_idx, e4m3);
  EXPECT_EQ(token.p.q, bf16);
  EXPECT_EQ(token.view(slot::k_scale).desc.shape, (std::vector<std::int64_t>{token.p.pool_pages, 2, 32}));
  EXPECT_EQ(token.view(slot::k_idx_scale).desc.shape, (std::vector<std::int64_t>{token.p.pool_pages, 32}));
  EXPECT_EQ(token.view(slot::q_idx_scale).desc.shape, (std::vector<std::int64_t>{token.p.total_q, 2}));
  const made_case whole("msa/h8x2.d64.b32.k4.l1.i0/rag.small/bf16.contig/random/fp8tensor/s0");
  const std::vector<std::int64_t> one = {1};
  for (const slot s : {slot::k_scale, slot::v_scale, slot::k_idx_scale}) EXPECT_EQ(whole.view(s).desc.shape, one);
  EXPECT_NE(whole.view(slot::k_scale).at(0), whole.view(slot::v_scale).at(0));
  EXPECT_EQ(token.in.count(slot::q_scale), 0U);
}

TEST(Scales, OfNormalValuesAreAnyNumbers) {
  const made_case m("attend/h8x2.d64.b32.k4.l1.i0/q5.n500.x2/bf16.paged/random/fp8/s0");
  std::set<double> k, v;
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t key = 0; key < 500; ++key)
      for (std::int64_t head = 0; head < 2; ++head) {
        k.insert(scale_at(m, slot::k_scale, b, key, head));
        v.insert(scale_at(m, slot::v_scale, b, key, head));
      }
  // Nearly all of 2000 differ, and none is missing, out of range or shared by keys and values.
  for (const auto* all : {&k, &v}) {
    EXPECT_GT(all->size(), 1990U);
    EXPECT_GE(*all->begin(), 0.5);
    EXPECT_LT(*all->rbegin(), 2);
    EXPECT_FALSE(std::isnan(*all->begin()));
  }
  EXPECT_NE(k, v);
}

TEST(Scales, OfCodesAreDividedOut) {
  for (const char* name : {"attend/h8x2.d64.b32.k4.l1.i0/rag.small/bf16.paged/block_code/fp8/s0",
                           "attend/h8x2.d64.b32.k4.l1.i0/rag.small/bf16.contig/block_code/fp8/s0",
                           "attend/h8x2.d64.b32.k4.l1.i0/rag.small/bf16.fused/block_code/stride/fp8/s0",
                           "attend/h8x2.d64.b32.k4.l1.i0/rag.small/bf16.paged/block_code/slack/fp8tensor/s0"}) {
    const made_case m(name);
    std::set<double> stored;
    for (std::int64_t b = 0; b < m.batch(); ++b)
      for (std::int64_t key = 0; key < m.kv_len(b); ++key)
        for (std::int64_t head = 0; head < m.p.hkv; ++head) {
          const std::int64_t channel = (key / m.p.block + 17 * head) % m.p.d;
          const double value = m.cache_at(slot::v, b, key, head, channel),
                       scale = scale_at(m, slot::v_scale, b, key, head);
          if (std::isnan(value)) continue;  // nobody's: a sequence without rows
          ASSERT_EQ(value * scale, 1) << name << ' ' << b << ' ' << key << ' ' << head;
          ASSERT_TRUE(is_power_of_two(scale));
          stored.insert(value);
        }
    EXPECT_EQ(stored.size(), m.p.kv_scale == 2 ? 4U : 1U) << name;
    EXPECT_FALSE(stored.contains(1) && stored.size() == 1) << name;
  }
}

TEST(Scales, OfCarriesLeaveTheRest) {
  const made_case m("attend/m3/q1.n2K/bf16.contig/carry/fp8/s0");
  const auto value = [&](std::int64_t key, std::int64_t head, std::int64_t channel) {
    return m.cache_at(slot::v, 0, key, head, channel) * scale_at(m, slot::v_scale, 0, key, head);
  };
  EXPECT_EQ(value(60, 0, 0), 1.0);
  EXPECT_EQ(value(60, 1, 0), -1.0);
  EXPECT_EQ(value(5, 0, 5), -1.0 - 0x1p-3);
}

TEST(Scales, ArePoisonBehindTheLastTokenAndInNobodysPages) {
  const made_case m("attend/h8x2.d64.b32.k4.l1.i0/rag.small/bf16.paged/random/fp8/s0");
  std::set<std::int64_t> owned;
  std::int64_t behind = 0;
  for (std::int64_t b = 0; b < m.batch(); ++b)
    for (std::int64_t column = 0; column * m.p.page_size < m.kv_len(b); ++column) {
      const std::int64_t page = m.view(slot::block_table).int_at(b, column);
      owned.insert(page);
      for (std::int64_t token = m.kv_len(b) - column * m.p.page_size; token < m.p.page_size; ++token, ++behind)
        for (std::int64_t head = 0; head < 2; ++head)
          EXPECT_TRUE(std::isnan(m.view(slot::k_scale).at(page, head, token)));
    }
  EXPECT_GT(behind, 0);
  for (std::int64_t page = 0; page < m.p.pool_pages; ++page)
    EXPECT_TRUE(owned.contains(page) || std::isnan(m.view(slot::v_scale).at(page, 0, 3)));
}

TEST(Scales, OfTheIndexBranchAreDividedOutOfItsCodes) {
  const made_case m("score/m3/rag.draft/bf16.paged/index_code/fp8/s0");
  const auto& q = m.view(slot::q_idx);
  std::set<double> scales;
  for (std::int64_t row = 0; row < m.set.sizes.t; ++row)
    for (std::int64_t head = 0; head < m.p.hi; ++head) {
      const double scale = m.view(slot::q_idx_scale).at(row, head);
      ASSERT_EQ(std::abs(q.at(row, head, 7)) * scale, 1);
      scales.insert(scale);
    }
  EXPECT_EQ(scales.size(), 4U);
  for (std::int64_t key = 0; key < 129; ++key) {
    const std::int64_t page = m.view(slot::block_table_idx).int_at(0, key / m.p.page_size);
    const double scale = m.view(slot::k_idx_scale).at(page, key % m.p.page_size);
    const double value = std::abs(m.view(slot::k_idx).at(page, key % m.p.page_size, 0)) * scale;
    ASSERT_GE(value, 1);
    ASSERT_LE(value, 240);
    ASSERT_EQ(value, round_to(value, e4m3));
  }
}

}  // namespace
}  // namespace msabench

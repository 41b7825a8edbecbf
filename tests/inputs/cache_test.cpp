// SPDX-License-Identifier: Apache-2.0
// What the cache holds where: generator values where rows read, poison where nobody may look, far values between.
#include <cstring>

#include "tests/inputs/made_case.h"

namespace msabench {
namespace {

std::vector<double> row_of(const made_case& m, slot s, std::int64_t b, std::int64_t key, std::int64_t head) {
  std::vector<double> values(static_cast<std::size_t>(m.p.d));
  widen(m.view(s).data, m.p.kv, m.cache_offset(s, b, key, head), m.p.d, values.data());
  return values;
}

std::vector<double> generated(const made_case& m, slot s, std::int64_t b, std::int64_t key, std::int64_t head,
                              double scale) {
  const stream normal(name_without_seed(m.c), name(s), m.c.seed);
  std::vector<double> values(static_cast<std::size_t>(m.p.d));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = round_to(normal.normal(m.stream_index(b, key, head) + i) * scale, m.p.kv);
  return values;
}

bool all_nan(const std::vector<double>& values) {
  for (const double x : values)
    if (!std::isnan(x)) return false;
  return true;
}

struct counts {
  std::int64_t read = 0, far = 0, poison = 0;
};

// Every key of every sequence and head against the rules of cache_fill.h.
counts check_cache(const made_case& m) {
  const auto read = m.keys_read();
  counts seen;
  for (std::int64_t b = 0; b < m.batch(); ++b)
    for (std::int64_t head = 0; head < m.p.hkv; ++head) {
      const auto& keys = read[static_cast<std::size_t>(b)][static_cast<std::size_t>(head)];
      for (std::int64_t key = 0; key < m.kv_len(b); ++key) {
        bool page_read = !m.p.paged();
        if (m.p.paged())
          for (std::int64_t j = key / m.p.page_size * m.p.page_size;
               j < m.kv_len(b) && j / m.p.page_size == key / m.p.page_size; ++j)
            page_read |= keys[static_cast<std::size_t>(j)];
        for (const slot s : {slot::k, slot::v}) {
          const auto values = row_of(m, s, b, key, head);
          if (keys[static_cast<std::size_t>(key)]) {
            ++seen.read;
            EXPECT_EQ(values, generated(m, s, b, key, head, 1)) << b << ' ' << key << ' ' << head;
          } else if (page_read) {
            ++seen.far;
            EXPECT_EQ(values, generated(m, s, b, key, head, 2048)) << b << ' ' << key << ' ' << head;
            for (const double x : values) EXPECT_LE(std::abs(x), 1e4);
          } else {
            ++seen.poison;
            EXPECT_TRUE(all_nan(values)) << b << ' ' << key << ' ' << head;
          }
          if (testing::Test::HasFailure()) return seen;
        }
      }
    }
  return seen;
}

class Cache : public testing::TestWithParam<const char*> {};

TEST_P(Cache, FollowsTheRules) {
  const made_case m(GetParam());
  const counts seen = check_cache(m);
  EXPECT_GT(seen.read, 0);
  EXPECT_TRUE(seen.poison > 0 || !m.p.paged() || m.p.max_blocks() <= m.p.topk * 3);
}

INSTANTIATE_TEST_SUITE_P(Layouts, Cache,
                         testing::Values("attend/m3/q1.n8K/bf16.paged/random/s0",
                                         "attend/m3/q1.n8K/bf16.fused/random/s0",
                                         "attend/h8x2.d64.b32.k4.l0.i0/q5.n2K/bf16.contig/random/s0",
                                         "attend/h8x2.d64.b32.k4.l0.i0/q5.n2K.x3/fp16.paged/random/stride/s0",
                                         "attend/h8x2.d64.b32.k4.l1.i0/q5.n2K/bf16.fused/random/stride/slack/s1",
                                         "attend/h8x2.d64.b32.k4.l1.i0/q5.n2K/fp32.contig/random.flat/stride/slack/s1",
                                         "attend/h8x2.d64.b32.k4.l1.i0/q5.n2K/bf16.paged/random.sharp/page64/s0",
                                         "attend/h8x2.d64.b32.k4.l1.i1/q5.n2K/bf16.paged/random/page16/s0",
                                         "attend/h8x2.d64.b32.k4.l1.i0/q5.n2K/bf16.paged/random/lenient/s0",
                                         "attend/h8x2.d64.b32.k4.l1.i0/q5.n300/bf16.paged/random/s0"));

TEST(CachePoison, StandsBehindTheLastTokenAndInNobodysPages) {
  for (const char* name : {"attend/h8x2.d64.b32.k4.l1.i0/rag.small/bf16.paged/random/s0",
                           "attend/h8x2.d64.b32.k4.l1.i0/rag.small/bf16.fused/block_code/page64/s0",
                           "attend/h8x2.d64.b32.k4.l1.i0/rag.small/fp16.paged/key_code/stride/s0"}) {
    const made_case m(name);
    std::vector<bool> owned(static_cast<std::size_t>(m.p.pool_pages));
    std::int64_t tail = 0, nobodys = 0, all_bits = 0;
    const auto expect_poison = [&](std::int64_t page, std::int64_t head, std::int64_t token) {
      for (const slot s : {slot::k, slot::v})
        for (std::int64_t c = 0; c < m.p.d; ++c) {
          ASSERT_TRUE(std::isnan(m.view(s).at(page, head, token, c)));
          std::uint16_t bits = 0;
          std::memcpy(&bits, static_cast<const std::byte*>(m.view(s).data) + m.view(s).offset(page, head, token, c) * 2,
                      2);
          all_bits += bits == 0xFFFF;
        }
    };
    for (std::int64_t b = 0; b < m.batch(); ++b)
      for (std::int64_t column = 0; column * m.p.page_size < m.kv_len(b); ++column) {
        const std::int32_t page = m.view(slot::block_table).int_at(b, column);
        owned[static_cast<std::size_t>(page)] = true;
        for (std::int64_t token = std::max<std::int64_t>(0, m.kv_len(b) - column * m.p.page_size);
             token < m.p.page_size; ++token)
          for (std::int64_t head = 0; head < m.p.hkv; ++head, ++tail) expect_poison(page, head, token);
      }
    for (std::int64_t page = 0; page < m.p.pool_pages; ++page)
      for (std::int64_t head = 0; head < m.p.hkv && !owned[static_cast<std::size_t>(page)]; ++head, ++nobodys)
        for (std::int64_t token = 0; token < m.p.page_size; ++token) expect_poison(page, head, token);
    EXPECT_GT(tail, 0) << name;
    EXPECT_GT(nobodys, 0) << name;
    EXPECT_GT(all_bits, 0) << name;
  }
}

TEST(CachePoison, NeverStandsWhereCodesName) {
  const made_case m("attend/h8x2.d64.b32.k4.l1.i0/q1.n2K/bf16.paged/block_code/s0");
  for (std::int64_t key = 0; key < 2048; ++key)
    for (std::int64_t c = 0; c < 64; ++c)
      for (const slot s : {slot::k, slot::v}) ASSERT_FALSE(std::isnan(m.cache_at(s, 0, key, 1, c)));
}

TEST(CacheOfAMillion, HoldsReadPagesTheirNeighboursAndBothEnds) {
  const made_case m("attend/m3/q1.n1M/bf16.paged/random/s0");
  const auto& table = m.view(slot::block_table);
  const auto& k = m.view(slot::k);
  const std::int64_t last = m.p.pool_pages - 1;
  for (std::int64_t head = 0; head < 4; ++head) {
    const auto blocks = m.chosen(0, head);
    ASSERT_EQ(blocks.size(), 16u);
    const auto is_read = [&](std::int64_t page) {
      for (const auto b : blocks)
        if (table.int_at(0, b) == page) return true;
      return false;
    };
    const auto expect_poison = [&](std::int64_t page) {
      const bool nobody_reads = page >= 0 && page <= last && !is_read(page);
      EXPECT_TRUE(!nobody_reads || std::isnan(k.at(page, head, 5, 7))) << page;
    };
    for (const auto b : blocks) {
      EXPECT_EQ(row_of(m, slot::k, 0, b * 128 + 3, head), generated(m, slot::k, 0, b * 128 + 3, head, 1));
      expect_poison(table.int_at(0, b) - 1);
      expect_poison(table.int_at(0, b) + 1);
      if (b > 0) expect_poison(table.int_at(0, b - 1));
      if (b < 8191) expect_poison(table.int_at(0, b + 1));
    }
    expect_poison(0);
    expect_poison(last);
  }
}

TEST(Generator, MatchesTheFirstValuesOfTheInterface) {
  // The stream of `attend/m3/q1.n1M/bf16.paged/random|k` at seed 0 begins with bf16 bf7a 3f1a 3eac bfaa.
  const made_case m("attend/m3/q1.n1M/bf16.paged/random/s0");
  const stream k(name_without_seed(m.c), "k", 0);
  std::uint16_t first[4];
  k.fill_normal(first, bf16, 0, 4);
  EXPECT_EQ(first[0], 0xbf7a);
  EXPECT_EQ(first[1], 0x3f1a);
  EXPECT_EQ(first[2], 0x3eac);
  EXPECT_EQ(first[3], 0xbfaa);
}

}  // namespace
}  // namespace msabench

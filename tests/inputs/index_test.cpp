// SPDX-License-Identifier: Apache-2.0
// The inputs of the index branch, read through their tensors alone.
#include <algorithm>
#include <set>

#include "tests/inputs/made_case.h"

namespace msabench {
namespace {

std::int64_t key_offset(const made_case& m, std::int64_t b, std::int64_t key) {
  const tensor_view& cache = m.view(slot::k_idx);
  if (!m.p.paged()) return cache.offset(m.view(slot::cu_seqlens_kv).int_at(b) + key, 0);
  return cache.offset(m.view(slot::block_table_idx).int_at(b, key / m.p.page_size), key % m.p.page_size, 0);
}

std::vector<double> key_of(const made_case& m, std::int64_t b, std::int64_t key) {
  std::vector<double> values(static_cast<std::size_t>(m.p.di));
  widen(m.view(slot::k_idx).data, m.p.k_idx, key_offset(m, b, key), m.p.di, values.data());
  return values;
}

std::vector<double> query_of(const made_case& m, std::int64_t row, std::int64_t head) {
  std::vector<double> values(static_cast<std::size_t>(m.p.di));
  const tensor_view& q = m.view(slot::q_idx);
  widen(q.data, m.p.q_idx, q.offset(row, head, 0), m.p.di, values.data());
  return values;
}

TEST(IndexBranch, HoldsGeneratorValuesWhereRowsReadAndPoisonWhereNobodyDoes) {
  for (const char* name :
       {"score/m3.tp2/rag.holes/bf16.paged/random/s0", "score/m3.tp2/rag.holes/bf16.contig/random/s0",
        "index/h8x2.d64.di24.b32.k4.l1.i0/rag.small/fp32.paged/random.sharp/s3",
        "index/h8x2.d64.di24.b32.k4.l1.i0/rag.small/fp16.contig/random.flat/stride/s0",
        "score/m3.tp4/rag.draft/bf16.paged/random/page64/slack/s0",
        "score/m3.tp4/rag.draft/bf16.paged/random/page256/s0"}) {
    SCOPED_TRACE(name);
    const made_case m(name);
    const stream keys(name_without_seed(m.c), "k_idx", m.c.seed), queries(name_without_seed(m.c), "q_idx", m.c.seed);
    std::set<std::int64_t> read;  // offsets of keys
    for (std::int64_t b = 0; b < m.batch(); ++b) {
      const bool has_rows = m.view(slot::cu_seqlens_q).int_at(b + 1) > m.view(slot::cu_seqlens_q).int_at(b);
      for (std::int64_t key = 0; has_rows && key < m.kv_len(b); ++key) read.insert(key_offset(m, b, key));
    }
    const tensor_view& k = m.view(slot::k_idx);
    const std::int64_t packed_rows = k.desc.elements() / m.p.di, per_page = m.p.paged() ? m.p.page_size : 1;
    std::int64_t poisoned = 0;
    for (std::int64_t row = 0; row < packed_rows; ++row) {
      const std::int64_t at = m.p.paged() ? k.offset(row / per_page, row % per_page, 0) : k.offset(row, 0);
      const double first = load(k.data, m.p.k_idx, at);
      if (read.contains(at)) {
        for (const std::int64_t c : {std::int64_t{0}, std::int64_t{m.p.di} - 1})
          ASSERT_EQ(load(k.data, m.p.k_idx, at + c),
                    round_to(keys.normal(static_cast<std::uint64_t>(row * m.p.di + c)), m.p.k_idx));
      } else if (std::isnan(first)) {
        ++poisoned;
      } else {
        ASSERT_LE(std::abs(first), 1e4);
      }
    }
    EXPECT_EQ(poisoned > 0, m.p.paged() || m.c.options.slack);
    const double scale = m.c.variant == "flat" ? 0.125 : m.c.variant == "sharp" ? 4 : 1;
    for (std::int64_t row = 0; row < std::ssize(m.rows()); ++row)
      for (std::int64_t h = 0; h < m.p.hi; ++h)
        ASSERT_EQ(
            query_of(m, row, h)[1],
            round_to(scale * queries.normal(static_cast<std::uint64_t>((row * m.p.hi + h) * m.p.di + 1)), m.p.q_idx));
  }
}

// A maximum passes over NaN, so that NaN alone would not show that a slot was read.
TEST(IndexBranch, SlotsPastTheEndOfASequenceAreNanOrOutweighEveryKey) {
  const made_case m("score/m3.tp4/rag.draft/bf16.paged/random/s0");
  std::int64_t nan = 0, huge = 0;
  for (std::int64_t b = 0; b < m.batch(); ++b)
    for (std::int64_t key = m.kv_len(b); key % m.p.page_size != 0; ++key)
      for (const double x : key_of(m, b, key)) {
        ASSERT_TRUE(std::isnan(x) || x > 9000) << x;
        ++(std::isnan(x) ? nan : huge);
      }
  EXPECT_GT(nan, 0);
  EXPECT_GT(huge, 0);
}

TEST(IndexBranch, UnusedEntriesOfTheTableAreHuge) {
  const made_case m("score/m3.tp4/rag.draft/bf16.paged/random/s0");
  const tensor_view& table = m.view(slot::block_table_idx);
  std::set<std::int32_t> pages;
  for (std::int64_t b = 0; b < m.batch(); ++b)
    for (std::int64_t column = 0; column < table.desc.shape[1]; ++column) {
      const bool used = column * m.p.page_size < m.kv_len(b);
      ASSERT_EQ(table.int_at(b, column) < m.p.pool_pages, used);
      if (used) pages.insert(table.int_at(b, column));
    }
  EXPECT_FALSE(pages.contains(0));
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t c = 0; c < a.size(); ++c) sum += a[c] * b[c];
  return sum;
}

// In every block that a row sees whole exactly one key answers to the row's direction, where a block has as many keys as
// directions; all others score 0, and over rows and heads each offset has its turn.
TEST(IndexCode, NamesOneKeyOfEachBlockAndGoesThroughTheOffsets) {
  for (const char* name : {"score/m3/q8.n2K/bf16.paged/index_code/s0", "index/m3.tp2/q40.n1K/fp16.contig/index_code/s1",
                           "index/h8x2.d64.b64.k4.l1.i0/q9.n1K.x3/fp32.paged/index_code.ties/s0"}) {
    SCOPED_TRACE(name);
    const made_case m(name);
    std::set<std::int64_t> offsets;
    for (std::int64_t row = 0; row < std::ssize(m.rows()); ++row)
      for (std::int64_t h = 0; h < m.p.hi; ++h) {
        const auto place = m.rows()[static_cast<std::size_t>(row)];
        const auto q = query_of(m, row, h);
        for (std::int64_t block = 0; (block + 1) * m.p.block <= place.position + 1; ++block) {
          std::int64_t answering = 0;
          for (std::int64_t o = 0; o < m.p.block; ++o) {
            const double s = dot(q, key_of(m, place.sequence, block * m.p.block + o));
            if (s == 0) continue;
            ++answering;
            offsets.insert(o);
            ASSERT_GE(s, m.p.di);
          }
          ASSERT_EQ(answering, 1);
        }
      }
    EXPECT_EQ(std::ssize(offsets), m.p.block);
  }
}

TEST(IndexCode, HasTiesOnlyWhereItSaysSo) {
  const auto distinct = [](const char* name) {
    const made_case m(name);
    std::set<double> magnitudes;
    for (std::int64_t key = 0; key < m.kv_len(0); ++key) magnitudes.insert(std::abs(key_of(m, 0, key)[0]));
    return magnitudes.size();
  };
  EXPECT_EQ(distinct("score/m3.tp4/q1.n8K/bf16.paged/index_code.ties/s0"), 4u);
  EXPECT_GT(distinct("score/m3.tp4/q1.n8K/bf16.paged/index_code/s0"), 400u);
}

// Channels past the last power of two are unused.
TEST(IndexCode, TakesAnyWidth) {
  const made_case m("score/h2x1.d64.di24.b16.k4.l1.i0/q3.n200/bf16.contig/index_code/s0");
  for (std::int64_t key = 0; key < 200; ++key) {
    const auto k = key_of(m, 0, key);
    for (std::size_t c = 0; c < 24; ++c) ASSERT_EQ(k[c] == 0, c >= 16);
  }
}

TEST(Negative, ScoresAreAllBelowZero) {
  for (const char* name :
       {"score/m3/q2.n2K/bf16.paged/negative/s0", "score/h2x1.d64.di24.b16.k4.l1.i0/q3.n900/fp16.contig/negative/s0",
        "index/h2x1.d64.di300.b16.k4.l1.i0/q3.n900/fp32.contig/negative/s0"}) {
    const made_case m(name);
    for (std::int64_t row = 0; row < std::ssize(m.rows()); ++row)
      for (std::int64_t h = 0; h < m.p.hi; ++h)
        for (std::int64_t key = 0; key < m.kv_len(0); ++key)
          ASSERT_LT(dot(query_of(m, row, h), key_of(m, 0, key)), 0) << name;
  }
}

TEST(Special, BlocksHaveNoOneAllOrAllButOneSuchKey) {
  for (const char* name :
       {"score/m3.tp2/q2.n2K/bf16.paged/special.nan/s0", "score/m3.tp2/q2.n2K/bf16.contig/special.inf/s0"}) {
    const made_case m(name);
    const bool inf = m.c.variant == "inf";
    for (std::int64_t block = 0; block < 15; ++block) {
      std::int64_t odd = 0;
      for (std::int64_t o = 0; o < m.p.block; ++o) {
        const double s = dot(query_of(m, 0, 1), key_of(m, 0, block * m.p.block + o));
        ASSERT_FALSE(inf && std::isnan(s));
        // Head 1 asks with -1.
        if (std::isinf(s)) {
          ASSERT_EQ(s < 0, block / 4 % 2 == 0);
        }
        odd += std::isfinite(s) ? 0 : 1;
      }
      const std::int64_t wanted[] = {0, 1, m.p.block, m.p.block - 1};
      EXPECT_EQ(odd, wanted[block % 4]) << name << " block " << block;
    }
  }
}

}  // namespace
}  // namespace msabench

// SPDX-License-Identifier: Apache-2.0
// Families of attend: what their values add up to, by a plain float64 softmax.
#include <algorithm>
#include <set>

#include "tests/inputs/made_case.h"

namespace msabench {
namespace {

struct attended {
  std::vector<std::int64_t> keys;
  std::vector<double> weights;
};

attended attend_row(const made_case& m, std::int64_t row, std::int64_t head) {
  const auto place = m.rows()[static_cast<std::size_t>(row)];
  const std::int64_t kv_head = head / m.p.group();
  attended out;
  std::vector<double> q(static_cast<std::size_t>(m.p.d)), k(q.size());
  widen(m.view(slot::q).data, m.p.q, m.view(slot::q).offset(row, head, 0), m.p.d, q.data());
  double largest = -INFINITY, sum = 0;
  for (const std::int64_t block : m.chosen(row, kv_head))
    for (std::int64_t key = block * m.p.block; key < (block + 1) * m.p.block && key <= place.position; ++key) {
      widen(m.view(slot::k).data, m.p.kv, m.cache_offset(slot::k, place.sequence, key, kv_head), m.p.d, k.data());
      double score = 0;
      for (std::size_t c = 0; c < q.size(); ++c) score += q[c] * k[c];
      out.keys.push_back(key);
      out.weights.push_back(score * m.p.softmax_scale);
      largest = std::max(largest, out.weights.back());
    }
  for (double& w : out.weights) sum += w = std::exp(w - largest);
  for (double& w : out.weights) w /= sum;
  return out;
}

double entropy_in_keys(const made_case& m, std::int64_t row, std::int64_t head) {
  double squares = 0;
  for (const double w : attend_row(m, row, head).weights) squares += w * w;
  return 1 / squares;
}

TEST(Random, HasThreeEntropies) {
  const made_case flat("attend/m3.tp4/q1.n8K/bf16.paged/random.flat/s0"),
      mid("attend/m3.tp4/q1.n8K/bf16.paged/random/s0"), sharp("attend/m3.tp4/q1.n8K/bf16.paged/random.sharp/s0");
  for (std::int64_t head = 0; head < 16; ++head) {
    EXPECT_GT(entropy_in_keys(flat, 0, head), 1850);
    EXPECT_GT(entropy_in_keys(mid, 0, head), 60);
    EXPECT_LT(entropy_in_keys(mid, 0, head), 1000);
    EXPECT_LT(entropy_in_keys(sharp, 0, head), 40);
  }
}

// The weighted sum of values of channel c, and of their magnitudes.
std::pair<double, double> output_of(const made_case& m, std::int64_t row, std::int64_t head, std::int64_t channel) {
  const auto seen = attend_row(m, row, head);
  double out = 0, size = 0;
  for (std::size_t i = 0; i < seen.keys.size(); ++i) {
    const auto place = m.rows()[static_cast<std::size_t>(row)];
    const double v = m.cache_at(slot::v, place.sequence, seen.keys[i], head / m.p.group(), channel);
    out += seen.weights[i] * v;
    size += seen.weights[i] * std::abs(v);
  }
  return {out, size};
}

TEST(Cancel, OutputsVanishBesideTheirTerms) {
  // Position 2047: every pair is whole.
  const made_case m("attend/m3.tp4/q1.n2K/bf16.paged/cancel/s0");
  for (const std::int64_t head : {0, 7, 15}) {
    const auto [out, size] = output_of(m, 0, head, 3);
    EXPECT_LT(std::abs(out), 1e-12);
    EXPECT_GT(size, 0.3);
  }
}

TEST(Offset, ValuesHaveAMean) {
  const made_case m("attend/m3.tp4/q1.n2K/bf16.paged/offset/s0");
  EXPECT_NEAR(output_of(m, 0, 2, 5).first, 8, 0.5);
}

// The largest scaled score of (row, head), and the one that all scores have about them.
TEST(HotFlat, ScoresStandWhereTheNameSays) {
  for (const auto& [variant, level] : {std::pair{"p30", 30.0}, {"n100", -100.0}, {"p1000", 1000.0}}) {
    const made_case m(std::string("attend/m3.tp4/q1.n2K/bf16.paged/hot_flat.") + variant + "/s0");
    std::vector<double> q(static_cast<std::size_t>(m.p.d)), k(q.size());
    widen(m.view(slot::q).data, m.p.q, 0, m.p.d, q.data());
    double sum = 0;
    for (std::int64_t key = 0; key < 2048; ++key) {
      widen(m.view(slot::k).data, m.p.kv, m.cache_offset(slot::k, 0, key, 0), m.p.d, k.data());
      double score = 0;
      for (std::size_t c = 0; c < q.size(); ++c) score += q[c] * k[c];
      sum += score * m.p.softmax_scale / 2048;
    }
    EXPECT_NEAR(sum, level, std::abs(level) / 100 + 0.2) << variant;
  }
}

TEST(Ramp, BlocksRiseFallOrAreEqual) {
  for (const auto& [variant, way] : {std::pair{"rising", 1}, {"falling", -1}, {"equal", 0}}) {
    const made_case m(std::string("attend/m3.tp4/q1.n2K/bf16.paged/ramp.") + variant + "/s0");
    const auto seen = attend_row(m, 0, 0);
    double first = 0, last = 0;
    for (std::size_t i = 0; i < seen.keys.size(); ++i) {
      if (seen.keys[i] < 128) first = std::max(first, seen.weights[i]);
      if (seen.keys[i] >= 1920) last = std::max(last, seen.weights[i]);
    }
    if (way == 0) {
      EXPECT_DOUBLE_EQ(first, last);
    }
    if (way > 0) {
      EXPECT_GT(last, 20 * first);
    }
    if (way < 0) {
      EXPECT_GT(first, 20 * last);
    }
  }
}

class Needle : public testing::TestWithParam<const char*> {};

TEST_P(Needle, CarriesNearlyAllWeight) {
  const made_case m(GetParam());
  const auto& rows = m.rows();
  std::set<std::size_t> slots;
  std::set<std::int64_t> offsets;
  std::set<std::pair<std::int64_t, std::int64_t>> blocks;  // of a KV head, that hold a needle
  std::size_t groups = 0, most_slots = 0;
  for (std::size_t row = 0; row < rows.size(); ++row)
    for (std::int64_t kv_head = 0; kv_head < m.p.hkv; ++kv_head) {
      std::set<std::int64_t> needles;
      std::size_t keys = 0;
      for (std::int64_t head = kv_head * m.p.group(); head < (kv_head + 1) * m.p.group(); ++head) {
        const attended a = attend_row(m, static_cast<std::int64_t>(row), head);
        if (a.keys.empty()) continue;
        const auto heaviest = std::max_element(a.weights.begin(), a.weights.end());
        ASSERT_GE(*heaviest, 0.99) << "row " << row << " head " << head << " of " << a.keys.size() << " keys";
        needles.insert(a.keys[static_cast<std::size_t>(heaviest - a.weights.begin())]);
        keys = a.keys.size();
        // The others still count: without them the denominator would differ by far more than fp32 rounding.
        ASSERT_TRUE(keys < 64 || 1 - *heaviest > 1e-6) << "row " << row << " head " << head;
      }
      if (keys == 0) continue;
      ASSERT_EQ(needles.size(), 1u) << "the heads of a group look for one key";
      const auto chosen = m.chosen(static_cast<std::int64_t>(row), kv_head);
      const auto at = std::find(chosen.begin(), chosen.end(), *needles.begin() / m.p.block);
      slots.insert(static_cast<std::size_t>(at - chosen.begin()));
      offsets.insert(*needles.begin() % m.p.block);
      blocks.emplace(kv_head, *needles.begin() / m.p.block);
      most_slots = std::max(most_slots, chosen.size());
      ++groups;
    }
  EXPECT_GE(slots.size() * 2, std::min(groups, most_slots));
  EXPECT_GE(offsets.size() * 3, std::min<std::size_t>(blocks.size(), static_cast<std::size_t>(m.p.block)));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Needle,
    testing::Values("attend/m3/q1.n1M/bf16.paged/needle/s0", "attend/m3/q1.n128K.x16/bf16.paged/needle/s0",
                    "attend/m3/q4.n8K/bf16.contig/needle/s1", "attend/m3.tp4/q33.n8K/bf16.paged/needle/s0",
                    "attend/m3.tp4/q1.n8K.x4/bf16.paged/needle/scale0.05/s0",
                    "attend/m3.tp4/rag.draft/fp16.fused/needle/s0", "attend/m3.tp2/rag.edges/fp32.paged/needle/s0",
                    "attend/h4x2.d64.b32.k4.l1.i0/rag.small/bf16.paged/needle/s0",
                    "attend/h4x2.d64.b64.k16.l1.i0/q65.n3K/bf16.contig/needle/s0",
                    "attend/h6x3.d64.b16.k8.l0.i1/q33.n500.x2/bf16.paged/needle/s0",
                    "attend/h4x1.d128.b128.k4.l1.i0/rag.tiles/bf16.contig/needle/lenient/s0",
                    "attend/h4x1.d128.b128.k4.l1.i0/rag.tiles/bf16.contig/needle/short/s0",
                    "dense/m3.tp4/q1.n128K/bf16.paged/needle/s0", "dense/m3.tp2/q1.n8K.x4/bf16.contig/needle/s0",
                    "dense/m3.tp4/rag.three/bf16.paged/needle/s0", "dense/m3.tp4/rag.tiles/fp32.fused/needle/s0",
                    "dense/h6x3.d64.b16.k8.l0.i1/q33.n500.x2/bf16.paged/needle/s0"));

TEST(BlockCode, CountsKeysByBlock) {
  for (const char* name :
       {"attend/m3/q1.n1M/bf16.paged/block_code/s0", "attend/m3/q1.n1M/bf16.paged/block_code.high/s0",
        "attend/h4x2.d64.b32.k4.l1.i0/rag.small/fp16.contig/block_code/s0",
        "attend/h4x2.d64.b32.k4.l1.i0/rag.small/bf16.fused/block_code.high/stride/s0"}) {
    const made_case m(name);
    const auto& rows = m.rows();
    for (std::int64_t row = 0; row < std::min<std::int64_t>(8, m.set.sizes.t); ++row)
      for (std::int64_t head = 0; head < m.p.hkv; ++head) {
        const auto place = rows[static_cast<std::size_t>(row)];
        std::vector<double> sums(static_cast<std::size_t>(m.p.d)), expected(sums.size());
        for (const std::int64_t block : m.chosen(row, head)) {
          const std::int64_t code = m.c.variant == "high" ? block / m.p.d : block;
          expected[static_cast<std::size_t>((code + 17 * head) % m.p.d)] +=
              static_cast<double>(std::min<std::int64_t>(m.p.block, place.position + 1 - block * m.p.block));
          for (std::int64_t key = block * m.p.block; key < (block + 1) * m.p.block && key <= place.position; ++key)
            for (std::int64_t c = 0; c < m.p.d; ++c)
              sums[static_cast<std::size_t>(c)] += m.cache_at(slot::v, place.sequence, key, head, c);
        }
        EXPECT_EQ(sums, expected) << name << " row " << row << " head " << head;
      }
    for (std::int64_t c = 0; c < m.p.d; ++c) ASSERT_EQ(m.view(slot::q).at(0, 1, c), 0.0);
  }
}

TEST(KeyCode, NamesEveryKeyOfOneBlockAndGoesThroughTheSlots) {
  for (const char* name : {"attend/m3.tp2/q1.n8K.x16/bf16.paged/key_code/s0",
                           "attend/h4x2.d64.b128.k4.l1.i0/q3.n2K.x4/bf16.contig/key_code/s0",
                           "attend/h4x2.d64.b128.k4.l1.i0/q3.n2K.x4/bf16.paged/key_code.high/s0"}) {
    const made_case m(name);
    std::set<std::size_t> slots;
    for (std::int64_t b = 0; b < m.batch(); ++b)
      for (std::int64_t head = 0; head < m.p.hkv; ++head) {
        const auto chosen = m.chosen(m.view(slot::cu_seqlens_q).int_at(b + 1) - 1, head);
        for (std::size_t at = 0; at < chosen.size(); ++at)
          for (std::int64_t offset = 0; offset < m.p.block; ++offset) {
            const std::int64_t key = chosen[at] * m.p.block + offset;
            if (key >= m.kv_len(b)) continue;
            const bool coded = at == static_cast<std::size_t>(b) % chosen.size();
            const std::int64_t code = m.c.variant == "high" ? offset / m.p.d : offset;
            if (coded) slots.insert(at);
            for (std::int64_t c = 0; c < m.p.d; ++c)
              ASSERT_EQ(m.cache_at(slot::v, b, key, head, c), coded && c == (code + 17 * head) % m.p.d ? 1.0 : 0.0);
          }
      }
    EXPECT_EQ(slots.size(), static_cast<std::size_t>(m.p.topk)) << name;
  }
}

// Every block is read, and a batch goes through them from the first to the last.
TEST(KeyCode, SpreadsOverTheBlocksOfDense) {
  const auto coded_block = [](const made_case& m, std::int64_t b) {
    std::int64_t coded = -1;
    for (std::int64_t key = 0; key < m.kv_len(b); ++key)
      for (std::int64_t c = 0; c < m.p.d; ++c)
        if (m.cache_at(slot::v, b, key, 0, c) != 0) {
          EXPECT_TRUE(coded < 0 || coded == key / m.p.block);
          EXPECT_EQ(c, key % m.p.block % m.p.d);
          coded = key / m.p.block;
        }
    return coded;
  };
  const made_case many("dense/h4x2.d64.b32.k4.l1.i0/q3.n500.x4/bf16.paged/key_code/s0");
  for (std::int64_t b = 0; b < 4; ++b) EXPECT_EQ(coded_block(many, b), 5 * b);
  EXPECT_EQ(coded_block(made_case("dense/h4x2.d64.b32.k4.l1.i0/q3.n500/bf16.contig/key_code/s0"), 0), 15);
}

// Partial sums in the order of keys, all channels: exact in fp32 means that float and double agree.
struct carried {
  double exact = 0, in_bf16 = 0;
  bool float_is_exact = true;
};
carried accumulate(const made_case& m, std::int64_t row, std::int64_t head, std::int64_t channel) {
  const auto place = m.rows()[static_cast<std::size_t>(row)];
  carried sum;
  float in_float = 0;
  for (const std::int64_t block : m.chosen(row, head))
    for (std::int64_t key = block * m.p.block; key < (block + 1) * m.p.block && key <= place.position; ++key) {
      const double v = m.cache_at(slot::v, place.sequence, key, head, channel);
      sum.exact += v;
      in_float += static_cast<float>(v);
      sum.in_bf16 = round_to(sum.in_bf16 + v, bf16);
      sum.float_is_exact &= static_cast<double>(in_float) == sum.exact;
    }
  return sum;
}

TEST(Carry, LosesItsRestIn16BitsOnly) {
  for (const char* name :
       {"attend/m3/q1.n1M/bf16.paged/carry/s0", "attend/m3/q1.n8K.x3/bf16.paged/carry.all/s0",
        "attend/m3/q5.n8K/bf16.contig/carry/s0", "attend/m3/q5.n5000/bf16.contig/carry.all/s0",
        "attend/h4x2.d64.b32.k4.l1.i0/q3.n2K.x4/fp16.fused/carry/s0",
        "attend/h4x2.d64.b32.k5.l1.i0/q3.n2K.x4/fp32.paged/carry.all/s0", "dense/m3.tp4/q1.n8K.x4/bf16.paged/carry/s0",
        "dense/m3.tp4/q1.n8K.x3/bf16.contig/carry.all/s0"}) {
    const made_case m(name);
    for (std::int64_t row = 0; row < m.set.sizes.t; ++row)
      for (std::int64_t head = 0; head < m.p.hkv; ++head)
        for (const std::int64_t channel : {std::int64_t{0}, std::int64_t{1}, std::int64_t{m.p.d - 1}}) {
          const carried sum = accumulate(m, row, head, channel);
          ASSERT_TRUE(sum.float_is_exact) << name;
          // One 2^-7 for each block with more +1 than usual; the last block adds at most 1.
          EXPECT_LE(std::abs(sum.exact), 1 + 0x1p-7 * static_cast<double>(m.chosen(row, head).size()))
              << name << " row " << row << " head " << head;
          EXPECT_NE(sum.exact, 0) << name;
          EXPECT_GE(std::abs(sum.in_bf16 - sum.exact), 0x1p-7) << name << " row " << row << " head " << head;
        }
  }
}

TEST(Carry, AlternatesByHeadAndChannel) {
  const made_case m("attend/m3/q1.n2K/bf16.contig/carry/s0");
  EXPECT_EQ(m.cache_at(slot::v, 0, 60, 0, 0), 1.0);
  EXPECT_EQ(m.cache_at(slot::v, 0, 60, 0, 1), -1.0);
  EXPECT_EQ(m.cache_at(slot::v, 0, 60, 1, 0), -1.0);
  EXPECT_EQ(m.cache_at(slot::v, 0, 70, 0, 0), -1.0);
  EXPECT_EQ(m.cache_at(slot::v, 0, 5, 0, 5), -1.0 - 0x1p-7);
}

}  // namespace
}  // namespace msabench

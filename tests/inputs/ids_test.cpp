// SPDX-License-Identifier: Apache-2.0
// The ids that `attend` is handed, against contract sections 4 and 5.
#include <algorithm>
#include <set>

#include "tests/inputs/made_case.h"

namespace msabench {
namespace {

std::vector<std::int64_t> ids_of(const made_case& m, std::int64_t row, std::int64_t head) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < m.p.topk; ++i) ids.push_back(m.id_at(row, head, i));
  return ids;
}

class CanonicalIds : public testing::TestWithParam<const char*> {};

TEST_P(CanonicalIds, AreWhatSelectWouldGive) {
  const made_case m(GetParam());
  const auto& rows = m.rows();
  for (std::size_t row = 0; row < rows.size(); ++row)
    for (std::int64_t head = 0; head < m.p.hkv; ++head) {
      const auto ids = ids_of(m, static_cast<std::int64_t>(row), head);
      const std::int64_t position = rows[row].position;
      const std::int64_t visible = position < 0 ? 0 : position / m.p.block + 1;
      const std::int64_t count = std::min<std::int64_t>(m.p.topk, visible);
      for (std::int64_t i = 0; i < m.p.topk; ++i) {
        const std::int64_t id = ids[static_cast<std::size_t>(i)];
        if (i >= count) {
          ASSERT_EQ(id, -1);
        } else {
          ASSERT_LT(id, visible);
          ASSERT_GT(id, i > 0 ? ids[static_cast<std::size_t>(i - 1)] : -1);
        }
      }
      for (std::int64_t b = 0; b < visible; ++b) {
        const bool forced = b < m.p.init_blocks || b > visible - 1 - m.p.local_blocks;
        ASSERT_TRUE(!forced || std::count(ids.begin(), ids.end(), b) == 1) << "block " << b << " of row " << row;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Cases, CanonicalIds,
                         testing::Values("attend/m3/q1.n1M/bf16.paged/random/s0",
                                         "attend/m3/rag.draft/bf16.paged/random/s0",
                                         "attend/m3/rag.holes/bf16.contig/random/s3",
                                         "attend/h8x2.d64.b32.k5.l2.i1/rag.small/bf16.paged/random/s0",
                                         "attend/h8x2.d64.b32.k4.l0.i0/q33.n500/bf16.contig/random/s0",
                                         "attend/h8x2.d64.b32.k4.l2.i2/q33.n500/bf16.contig/carry.all/s0",
                                         "attend/h8x2.d64.b32.k8.l1.i0/q300.n300/fp16.contig/carry.all/s0",
                                         "attend/h8x2.d64.b32.k1.l1.i0/q5.n500/bf16.paged/random/s0"));

TEST(Ids, DifferBetweenHeadsRowsAndSeeds) {
  const made_case m("attend/m3/q2.n128K.x2/bf16.paged/random/s0"), other("attend/m3/q2.n128K.x2/bf16.paged/random/s1");
  std::set<std::vector<std::int64_t>> seen;
  for (std::int64_t row = 0; row < 4; ++row)
    for (std::int64_t head = 0; head < 4; ++head) {
      seen.insert(ids_of(m, row, head));
      seen.insert(ids_of(other, row, head));
    }
  EXPECT_EQ(seen.size(), 32u);
}

TEST(Ids, CoverTheWholeContext) {
  const made_case m("attend/h8x2.d64.b32.k4.l1.i0/q64.n1K/bf16.contig/random/s0");
  std::set<std::int64_t> seen;
  for (std::int64_t row = 0; row < 64; ++row)
    for (std::int64_t head = 0; head < 2; ++head)
      for (const auto id : ids_of(m, row, head)) seen.insert(id);
  EXPECT_EQ(seen.size(), 32u);
}

TEST(Ids, AreSharedWithinSequencesForCarryOverAllKeys) {
  const made_case m("attend/m3/q5.n8K.x2/bf16.paged/carry.all/s0");
  for (std::int64_t head = 0; head < 4; ++head) {
    EXPECT_EQ(ids_of(m, 0, head), ids_of(m, 4, head));
    EXPECT_EQ(ids_of(m, 5, head), ids_of(m, 9, head));
    EXPECT_NE(ids_of(m, 0, head), ids_of(m, 5, head));
  }
}

TEST(Ids, ShortRowsHaveAnyCount) {
  const made_case m("attend/h8x2.d64.b32.k4.l1.i0/q64.n1K/bf16.contig/random/short/s0");
  std::set<std::ptrdiff_t> counts;
  for (std::int64_t row = 0; row < 64; ++row)
    for (std::int64_t head = 0; head < 2; ++head) {
      const auto ids = ids_of(m, row, head);
      const auto end = std::find(ids.begin(), ids.end(), -1);
      counts.insert(end - ids.begin());
      EXPECT_TRUE(std::is_sorted(ids.begin(), end));
      EXPECT_EQ(std::adjacent_find(ids.begin(), end), end);
      EXPECT_TRUE(std::all_of(end, ids.end(), [](std::int64_t id) { return id == -1; }));
    }
  EXPECT_EQ(counts, (std::set<std::ptrdiff_t>{0, 1, 2, 3, 4}));
}

TEST(Ids, LenientRowsHoldEveryKindOfNoise) {
  const made_case m("attend/h8x2.d64.b32.k16.l1.i0/q64.n2K/bf16.contig/random/lenient/s0");
  const auto& rows = m.rows();
  int gaps = 0, repeated = 0, past = 0, nonsense = 0, unordered = 0;
  for (std::int64_t row = 0; row < 64; ++row)
    for (std::int64_t head = 0; head < 2; ++head) {
      const auto ids = ids_of(m, row, head);
      const std::int64_t own = rows[static_cast<std::size_t>(row)].position / 32;
      EXPECT_GE(m.chosen(row, head).size(), 8u);
      std::set<std::int64_t> valid;
      bool hole = false;
      std::int64_t last = -1;
      for (const std::int64_t id : ids) {
        if (id == -1) hole = true;
        if (id < -1 || id > own + 3) ++nonsense;
        if (id > own && id <= own + 3) ++past;
        if (id < 0 || id > own) continue;
        if (hole) ++gaps;
        if (!valid.insert(id).second) ++repeated;
        if (id < last) ++unordered;
        last = id;
      }
    }
  for (const int kind : {gaps, repeated, past, nonsense, unordered}) EXPECT_GT(kind, 20);
}

TEST(Ids, AreLaidOutAsAsked) {
  const std::string_view text = "attend/h8x2.d64.b32.k4.l1.i0/q5.n500/bf16.contig/random/s0";
  problem p = make_problem(parse_case(text));
  const made_case canonical(text, p);
  p.asked.in_id_layout = id_layout::htk;
  const made_case heads_first(text, p);
  EXPECT_EQ(heads_first.view(slot::ids).desc.shape, (std::vector<std::int64_t>{2, 5, 4}));
  p.asked.in_id_layout = id_layout::thk;
  p.asked.in_id_order = id_order::any;
  const made_case any_order(text, p);
  bool other_order = false;
  for (std::int64_t row = 0; row < 5; ++row)
    for (std::int64_t head = 0; head < 2; ++head) {
      EXPECT_EQ(ids_of(canonical, row, head), ids_of(heads_first, row, head));
      auto any = ids_of(any_order, row, head);
      other_order |= any != ids_of(canonical, row, head);
      std::sort(any.begin(), any.end());
      EXPECT_EQ(any, ids_of(canonical, row, head));
    }
  EXPECT_TRUE(other_order);
}

}  // namespace
}  // namespace msabench

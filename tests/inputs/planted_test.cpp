// SPDX-License-Identifier: Apache-2.0
// The planted index branch of msa: who scores honestly can only select what the case means.
#include <algorithm>
#include <set>

#include "core/error.h"
#include "inputs/batch.h"
#include "inputs/families/family.h"
#include "tests/inputs/made_case.h"

namespace msabench {
namespace {

double block_score(const made_case& m, std::int64_t row, std::int64_t head, std::int64_t block) {
  const auto place = m.rows()[static_cast<std::size_t>(row)];
  const tensor_view &q = m.view(slot::q_idx), &k = m.view(slot::k_idx);
  std::vector<double> query(static_cast<std::size_t>(m.p.di)), key(query.size());
  widen(q.data, m.p.q_idx, q.offset(row, head, 0), m.p.di, query.data());
  double best = -INFINITY;
  for (std::int64_t j = block * m.p.block; j < (block + 1) * m.p.block && j <= place.position; ++j) {
    const std::int64_t at =
        m.p.paged()
            ? k.offset(m.view(slot::block_table_idx).int_at(place.sequence, j / m.p.page_size), j % m.p.page_size, 0)
            : k.offset(m.view(slot::cu_seqlens_kv).int_at(place.sequence) + j, 0);
    widen(k.data, m.p.k_idx, at, m.p.di, key.data());
    double sum = 0;
    for (std::size_t c = 0; c < key.size(); ++c) sum += query[c] * key[c];
    best = std::max(best, sum);
  }
  return best;
}

class Planted : public testing::TestWithParam<const char*> {};

TEST_P(Planted, BlocksStandOutByAWideMargin) {
  const made_case m(GetParam());
  const batch rows(m.c);
  const selection chosen(m.c, m.p, rows, m.c.variant == "all");
  const double full = static_cast<double>(planted_directions(m.p.di));
  std::int64_t planted = 0;
  for (std::int64_t row = 0; row < rows.total_q(); ++row) {
    const std::int64_t visible = rows.rows()[static_cast<std::size_t>(row)].visible_blocks(m.p.block);
    if (visible <= m.p.topk) continue;
    for (std::int64_t head = 0; head < m.p.hi; ++head) {
      const auto blocks = chosen.blocks(row, head);
      ASSERT_EQ(std::ssize(blocks), m.p.topk);
      for (std::int64_t b = 0; b < visible; ++b) {
        const double score = block_score(m, row, head, b);
        const bool meant = std::ranges::binary_search(blocks, static_cast<std::int32_t>(b));
        if (meant && !is_forced(b, visible - 1, m.p.local_blocks, m.p.init_blocks)) {
          ASSERT_EQ(score, full) << "row " << row << " head " << head << " block " << b;
          ++planted;
        } else {
          ASSERT_LT(score, full / 8) << "row " << row << " head " << head << " block " << b;
        }
      }
    }
  }
  EXPECT_GT(planted, 0);
}

INSTANTIATE_TEST_SUITE_P(Cases, Planted,
                         testing::Values("msa/m3/q1.n128K/bf16.paged/needle/s0",
                                         "msa/m3/q4.n8K.x2/bf16.contig/block_code/s0",
                                         "msa/m3.tp4/q33.n4K/bf16.paged/planted/s1",
                                         "msa/m3.tp2/rag.edges/fp16.fused/key_code/s0",
                                         "msa/m3/q3.n8K/fp32.paged/carry.all/s0",
                                         "msa/h6x3.d64.b16.k5.l2.i1/rag.small/bf16.paged/planted/stride/s0",
                                         "msa/h4x2.d64.di24.b32.k4.l0.i0/q5.n500.x3/bf16.contig/needle/s0"));

TEST(PlantedCases, NameMoreRowsAndHeadsThanDirectionsAreRefused) {
  EXPECT_NO_THROW(parse_case("msa/m3/q32.n8K/bf16.paged/needle/s0"));
  EXPECT_NO_THROW(parse_case("msa/m3/q33.n8K/bf16.paged/random/s0"));
  try {
    parse_case("msa/m3/q33.n8K/bf16.paged/needle/s0");
    FAIL();
  } catch (const usage_error& e) {
    EXPECT_NE(std::string(e.what()).find("directions"), std::string::npos) << e.what();
  }
}

// Keys of the main branch that nobody is meant to select are poison, where the selection is planted, and values where not.
TEST(PlantedCases, PoisonTheMainBranchOutsideOfTheSelection) {
  for (const auto& [name, poisoned] : {std::pair{"msa/m3.tp4/q1.n8K/bf16.paged/planted/s0", true},
                                       std::pair{"msa/m3.tp4/q1.n8K/bf16.paged/random/s0", false}}) {
    const made_case m(name);
    std::int64_t nan = 0;
    for (std::int64_t key = 0; key < m.kv_len(0); ++key) nan += std::isnan(m.cache_at(slot::v, 0, key, 0, 0)) ? 1 : 0;
    EXPECT_EQ(nan, poisoned ? (64 - 16) * 128 : 0) << name;
  }
}

}  // namespace
}  // namespace msabench

// SPDX-License-Identifier: Apache-2.0
// The given scores of select.*: each variant holds what its name says.
#include <algorithm>
#include <cfloat>
#include <set>

#include "tests/inputs/made_case.h"

namespace msabench {
namespace {

struct score_line {
  std::int64_t row = 0, head = 0, visible = 0;
  std::vector<float> scores;    // visible blocks
  std::vector<float> unforced;  // descending; NaN last
  std::vector<float> forced;
  std::size_t places = 0;  // left to the unforced
};

bool before(float a, float b) { return std::isnan(b) ? !std::isnan(a) : a > b; }

// Lines of rows that see more blocks than they may select.
std::vector<score_line> lines_of(const made_case& m) {
  std::vector<score_line> all;
  const auto& rows = m.rows();
  const tensor_view& scores = m.view(slot::scores);
  for (std::int64_t head = 0; head < m.p.hkv; ++head)
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const std::int64_t visible = rows[row].position < 0 ? 0 : rows[row].position / m.p.block + 1;
      for (std::int64_t b = visible; b < m.p.max_blocks(); ++b) EXPECT_EQ(scores.at(head, row, b), -INFINITY);
      if (visible <= m.p.topk) continue;
      score_line line{static_cast<std::int64_t>(row), head, visible, {}, {}, {}, 0};
      for (std::int64_t b = 0; b < visible; ++b) {
        const auto score = static_cast<float>(scores.at(head, row, b));
        const bool forced = b < m.p.init_blocks || b > visible - 1 - m.p.local_blocks;
        line.scores.push_back(score);
        (forced ? line.forced : line.unforced).push_back(score);
      }
      std::sort(line.unforced.begin(), line.unforced.end(), before);
      line.places = static_cast<std::size_t>(m.p.topk) - line.forced.size();
      all.push_back(std::move(line));
    }
  return all;
}

std::vector<score_line> lines_of(const std::string& variant, const std::string& lengths = "q12.n9K",
                                 const std::string& shape = "m3") {
  const made_case m("select/" + shape + "/" + lengths + "/bf16/select." + variant + "/s0");
  auto lines = lines_of(m);
  EXPECT_FALSE(lines.empty());
  return lines;
}

bool distinct(const std::vector<float>& sorted) {
  return std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
}

bool forced_are_lowest(const score_line& line) {
  const float highest = *std::max_element(line.forced.begin(), line.forced.end());
  return highest < line.unforced.back();
}

TEST(SelectScores, Gap) {
  for (const auto& line : lines_of("gap")) {
    EXPECT_TRUE(distinct(line.unforced));
    EXPECT_TRUE(forced_are_lowest(line));
    EXPECT_GE(line.unforced[line.places - 1] - line.unforced[line.places], 4);
  }
}

TEST(SelectScores, Step) {
  for (const auto& line : lines_of("step", "q2.n1M")) {
    EXPECT_TRUE(forced_are_lowest(line));
    for (std::size_t r = 0; r + 1 < line.unforced.size(); ++r)
      ASSERT_EQ(std::nextafterf(line.unforced[r + 1], INFINITY), line.unforced[r]);
  }
}

TEST(SelectScores, Tie17) {
  for (const auto& line : lines_of("tie17")) {
    const float tied = line.unforced[line.places];
    EXPECT_EQ(line.unforced[line.places - 1], tied);
    EXPECT_EQ(std::count(line.unforced.begin(), line.unforced.end(), tied), 17);
    EXPECT_TRUE(forced_are_lowest(line));
  }
}

TEST(SelectScores, EqualNegativeFew) {
  for (const auto& line : lines_of("equal"))
    EXPECT_EQ(std::set<float>(line.scores.begin(), line.scores.end()).size(), 1u);
  for (const auto& line : lines_of("negative")) {
    EXPECT_LT(line.unforced.front(), 0);
    EXPECT_TRUE(distinct(line.unforced));
    EXPECT_TRUE(forced_are_lowest(line));
  }
  for (const auto& line : lines_of("few")) {
    EXPECT_EQ(std::set<float>(line.unforced.begin(), line.unforced.end()).size(), 4u);
    EXPECT_TRUE(forced_are_lowest(line));
  }
}

TEST(SelectScores, OutlierHidesTheRestFrom16Bits) {
  int above = 0, below = 0;
  for (const auto& line : lines_of("outlier", "q2.n1M")) {
    EXPECT_TRUE(distinct(line.unforced));
    const float range = line.unforced.front() - line.unforced.back();
    const bool is_above = line.unforced.front() > 1000;
    (is_above ? above : below) += 1;
    const float spread = is_above ? line.unforced[1] - line.unforced.back()
                                  : line.unforced.front() - line.unforced[line.unforced.size() - 2];
    EXPECT_LT(spread, range / 65534);
  }
  EXPECT_GT(above, 0);
  EXPECT_GT(below, 0);
}

TEST(SelectScores, ClusterAroundRankK) {
  for (const auto& line : lines_of("cluster", "q2.n1M")) {
    EXPECT_TRUE(distinct(line.unforced));
    EXPECT_TRUE(forced_are_lowest(line));
    const auto prefix = [](float x) { return std::bit_cast<std::uint32_t>(x) >> 16; };
    const std::uint32_t at_k = prefix(line.unforced[line.places]);
    EXPECT_EQ(prefix(line.unforced[line.places - 1]), at_k);
    EXPECT_GE(std::count_if(line.unforced.begin(), line.unforced.end(), [&](float x) { return prefix(x) == at_k; }),
              4000);
  }
}

TEST(SelectScores, Rising) {
  for (const auto& line : lines_of("rising")) {
    EXPECT_TRUE(std::is_sorted(line.scores.begin(), line.scores.end() - 1));
    EXPECT_LT(line.scores.back(), line.scores.front());
  }
}

TEST(SelectScores, HeadsHaveDisjointWinners) {
  std::map<std::int64_t, std::set<std::int64_t>> winners_of_row;
  std::size_t places = 0;
  for (const auto& line : lines_of("heads", "q12.n16K")) {
    places = line.places;
    for (std::size_t b = 0; b < line.scores.size(); ++b)
      if (line.scores[b] >= line.unforced[line.places - 1])
        winners_of_row[line.row].insert(static_cast<std::int64_t>(b));
  }
  for (const auto& [row, winners] : winners_of_row) EXPECT_EQ(winners.size(), 4 * places) << row;
}

TEST(SelectScores, NanInEveryPlace) {
  int some = 0, more_than_left = 0, forced = 0, everything = 0, negative = 0;
  for (const auto& line : lines_of("nan")) {
    const auto is_nan = [](float x) { return std::isnan(x); };
    const auto count = static_cast<std::size_t>(std::count_if(line.unforced.begin(), line.unforced.end(), is_nan));
    const std::size_t finite = line.unforced.size() - count;
    if (count > 0 && finite >= line.places) ++some;
    if (finite > 0 && finite < line.places) ++more_than_left;
    if (std::all_of(line.forced.begin(), line.forced.end(), is_nan) && finite > 0) ++forced;
    if (std::all_of(line.scores.begin(), line.scores.end(), is_nan)) ++everything;
    for (const float x : line.scores) negative += std::isnan(x) && std::signbit(x);
  }
  for (const int kind : {some, more_than_left, forced, everything, negative}) EXPECT_GT(kind, 0);
}

TEST(SelectScores, InfinitiesOnBothSidesOfRankK) {
  int fewer = 0, more = 0, minus = 0;
  for (const auto& line : lines_of("inf")) {
    const auto plus = static_cast<std::size_t>(std::count(line.unforced.begin(), line.unforced.end(), INFINITY));
    if (plus > 0 && plus < line.places) ++fewer;
    if (plus > line.places) ++more;
    if (line.unforced[line.places - 1] == -INFINITY && line.unforced.front() > -INFINITY) ++minus;
  }
  for (const int kind : {fewer, more, minus}) EXPECT_GT(kind, 0);
}

TEST(SelectScores, HugeValuesMeetSentinels) {
  bool largest = false, sentinel = false, lowest = false;
  for (const auto& line : lines_of("huge", "q3.n1M")) {
    EXPECT_TRUE(distinct(line.unforced));
    largest |= line.unforced.front() == FLT_MAX && line.unforced[line.places] > 2e30f;
    sentinel |= line.unforced.front() == 2e30f && line.unforced[line.places] > 1e30f;
    lowest |= line.unforced.front() == -2e30f && line.unforced[line.places] < -1e30f;
  }
  EXPECT_TRUE(largest && sentinel && lowest);
}

TEST(SelectScores, ZerosOfBothSignsAroundRankK) {
  int tied = 0, against_negative = 0, against_positive = 0;
  for (const auto& line : lines_of("zero")) {
    std::set<bool> signs;
    for (const float x : line.unforced) {
      if (x == 0) signs.insert(std::signbit(x));
      EXPECT_TRUE(x == 0 || std::isnormal(x));
    }
    EXPECT_EQ(signs.size(), 2u);
    const float last = line.unforced[line.places - 1], next = line.unforced[line.places];
    tied += last == 0 && next == 0;
    against_negative += last == 0 && next < 0;
    against_positive += last > 0 && next == 0;
  }
  for (const int kind : {tied, against_negative, against_positive}) EXPECT_GT(kind, 0);
}

TEST(SelectScores, RandomIsTheGenerator) {
  const made_case m("select/m3/q3.n9K.x2/bf16/select.random/s4");
  const stream normal(name_without_seed(m.c), "scores", 4);
  for (std::int64_t head = 0; head < 4; ++head)
    for (std::int64_t row = 0; row < 6; ++row)
      for (std::int64_t b = 0; b < 70; ++b)
        EXPECT_EQ(m.view(slot::scores).at(head, row, b),
                  normal.normal(static_cast<std::uint64_t>((head * 6 + row) * 72 + b)));
}

TEST(SelectScores, EmptyRowsAndPaddingRows) {
  const made_case m("select/m3/rag.holes/bf16/select.gap/slack/s0");
  const auto& rows = m.rows();
  int empty = 0;
  for (std::size_t row = 0; row < rows.size(); ++row)
    if (rows[row].position < 0) {
      ++empty;
      for (std::int64_t b = 0; b < m.p.max_blocks(); ++b) EXPECT_EQ(m.view(slot::scores).at(1, row, b), -INFINITY);
    }
  EXPECT_GT(empty, 2);
  for (std::int64_t row = m.set.sizes.t; row < m.p.total_q; ++row)
    EXPECT_TRUE(std::isnan(m.view(slot::scores).at(0, row, 0)));
}

// Odd shapes: values are given and distinct where they should be, whatever is forced.
TEST(SelectScores, EveryVariantOnOddShapes) {
  for (const auto& family : families()) {
    if (family.name != "select") continue;
    for (const auto variant : family.variants)
      for (const char* shape :
           {"h3x1.d64.b32.k1.l1.i0", "h8x2.d64.b16.k6.l2.i2", "h8x2.d64.b16.k3.l0.i0", "h4x4.d64.b32.k4.l2.i2"})
        for (const auto& line : lines_of(std::string(variant), "rag.small", shape))
          EXPECT_EQ(line.scores.size(), static_cast<std::size_t>(line.visible));
  }
}

}  // namespace
}  // namespace msabench

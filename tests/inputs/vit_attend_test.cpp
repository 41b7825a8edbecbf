// SPDX-License-Identifier: Apache-2.0
// Segments of grids, and tokens that all see the whole of theirs.
#include <gtest/gtest.h>

#include <cmath>

#include "core/case.h"
#include "inputs/batch.h"
#include "inputs/input_set.h"
#include "inputs/lone_row.h"

namespace msabench {
namespace {

struct made_segments {
  explicit made_segments(const std::string& text)
      : c(parse_case("vit_attend/h2x2.d80.b128.k16.l1.i0/" + text)),
        set(make_inputs(c, make_problem(c))),
        in(set.views()) {}
  case_spec c;
  input_set set;
  std::map<slot, tensor_view> in;

  std::vector<std::int32_t> ends() const {
    const tensor_view& t = in.at(slot::cu_segments);
    std::vector<std::int32_t> all;
    for (std::int64_t i = 0; i < t.desc.shape[0]; ++i) all.push_back(t.int_at(i));
    return all;
  }
};

TEST(vit_attend_inputs, segments_are_those_of_the_contract) {
  using ends = std::vector<std::int32_t>;
  EXPECT_EQ(made_segments("g10x4x6/bf16/random/s0").ends(), (ends{0, 96, 192, 240}));
  EXPECT_EQ(made_segments("g1x4x4_5x2x2/bf16/random/s0").ends(), (ends{0, 16, 32, 36}));
  EXPECT_EQ(made_segments("g3x2x2_1x2x2/bf16/random/window1/s0").ends(), (ends{0, 4, 8, 12, 16}));
  EXPECT_EQ(made_segments("g10x4x6_1x2x2/bf16/random/window0/s0").ends(), (ends{0, 240, 244}));
  EXPECT_EQ(made_segments("g10x2x2/bf16/random/window3/s0").ends(), (ends{0, 12, 24, 36, 40}));
}

TEST(vit_attend_inputs, the_problem_counts_segments) {
  const problem p = make_problem(parse_case("vit_attend/m3/g10x4x6_1x2x2/bf16/random/s0"));
  EXPECT_EQ(p.batch, 4);
  EXPECT_EQ(p.total_q, 244);
  EXPECT_EQ(p.total_kv, 244);
  EXPECT_EQ(p.max_q_len, 96);
  EXPECT_EQ(p.max_kv_len, 96);
  EXPECT_EQ(p.vit_window, 4);
  EXPECT_EQ(p.hq, 16);
  EXPECT_EQ(p.d, 80);
  EXPECT_DOUBLE_EQ(p.softmax_scale, 1 / std::sqrt(80.0));
  const problem items =
      make_problem(parse_case("vit3d/m3/g10x4x6_1x2x2/bf16/random/s0", accepted_families::random_for_all));
  EXPECT_EQ(items.batch, 2);
}

TEST(vit_attend_inputs, every_token_of_a_segment_is_finite_and_what_follows_is_not) {
  for (const char* type : {"bf16", "fp16", "fp32"})
    for (const char* option : {"", "/stride", "/slack"}) {
      const made_segments m(std::string("g5x4x4_1x2x2/") + type + "/random" + option + "/s0");
      const std::int64_t tokens = m.ends().back();
      EXPECT_EQ(tokens, 84);
      for (const slot where : {slot::q, slot::k, slot::v}) {
        const tensor_view& t = m.in.at(where);
        EXPECT_EQ(t.desc.shape[0] > tokens, std::string(option) == "/slack");
        for (std::int64_t row = 0; row < t.desc.shape[0]; ++row)
          EXPECT_EQ(std::isfinite(t.at(row, 1, 79)), row < tokens) << name(where) << " " << row;
      }
    }
}

TEST(vit_attend_inputs, a_needle_of_a_segment_outweighs_all_of_it) {
  const made_segments m("g9x6x8_2x8x8/bf16/needle/s0");
  const auto ends = m.ends();
  const auto dot = [&](std::int64_t row, std::int64_t key) {
    double sum = 0;
    for (std::int64_t c = 0; c < 80; ++c) sum += m.in.at(slot::q).at(row, 1, c) * m.in.at(slot::k).at(key, 1, c);
    return sum / std::sqrt(80.0);
  };
  for (std::size_t s = 0; s + 1 < ends.size(); ++s)
    for (const std::int64_t row : {ends[s], ends[s + 1] - 1}) {
      double best = -1e9, total = 0;
      for (std::int64_t key = ends[s]; key < ends[s + 1]; ++key) best = std::max(best, dot(row, key));
      for (std::int64_t key = ends[s]; key < ends[s + 1]; ++key) total += std::exp(dot(row, key) - best);
      EXPECT_LT(total, 1 / 0.99) << row;
    }
}

TEST(vit_attend_inputs, a_lone_row_brings_its_segment) {
  const made_segments m("g10x4x6/bf16/random/s0");
  const problem alone = lone_row_problem(m.c, m.set.agreed, 96);
  EXPECT_EQ(alone.batch, 1);
  EXPECT_EQ(alone.total_q, 96);
  EXPECT_EQ(alone.total_kv, 96);
  const auto set = make_lone_row(m.c, m.set, alone, 96);
  ASSERT_TRUE(set);
  const auto in = set->views();
  EXPECT_EQ(in.at(slot::cu_segments).int_at(0), 0);
  EXPECT_EQ(in.at(slot::cu_segments).int_at(1), 96);
  for (const slot where : {slot::q, slot::k, slot::v})
    for (std::int64_t row : {0, 95}) EXPECT_EQ(in.at(where).at(row, 1, 7), m.in.at(where).at(96 + row, 1, 7));
}

TEST(vit_attend_inputs, names_say_the_window) {
  for (const char* text :
       {"vit_attend/m3/g10x4x6/bf16/random/window1/s0", "vit_attend/m3/g10x4x6/bf16/random/window0/s0",
        "vit_attend/m3/g10x4x6/bf16/key_code/scale0.05/window2/stride/s0"})
    EXPECT_EQ(name(parse_case(text)), text);
  for (const char* text :
       {"vit_attend/m3/g10x4x6/bf16/random/window4/s0", "dense/m3/q1.n1K/bf16.paged/random/window1/s0",
        "vit_attend/m3/g10x4x6/bf16/random/window/s0"})
    EXPECT_THROW(parse_case(text), std::exception) << text;
}

}  // namespace
}  // namespace msabench

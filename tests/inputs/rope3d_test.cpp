// SPDX-License-Identifier: Apache-2.0
// Grids, and heads of patches.
#include <gtest/gtest.h>

#include <cmath>

#include "core/case.h"
#include "inputs/input_set.h"

namespace msabench {
namespace {

struct made_patches {
  explicit made_patches(const std::string& text)
      : c(parse_case("rope3d/h2x2.d80.b128.k16.l1.i0/" + text)),
        set(make_inputs(c, make_problem(c))),
        in(set.views()) {}
  case_spec c;
  input_set set;
  std::map<slot, tensor_view> in;
};

TEST(rope3d_inputs, grids_are_those_of_the_name) {
  for (const char* option : {"", "/stride", "/slack"}) {
    const made_patches m(std::string("g10x4x6_1x2x8/bf16/tokens.random") + option + "/s0");
    const tensor_view& grids = m.in.at(slot::grids);
    ASSERT_EQ(grids.desc.shape, (std::vector<std::int64_t>{2, 3}));
    const std::int32_t want[2][3] = {{10, 4, 6}, {1, 2, 8}};
    for (std::int64_t i = 0; i < 2; ++i)
      for (std::int64_t axis = 0; axis < 3; ++axis) EXPECT_EQ(grids.int_at(i, axis), want[i][axis]);
    EXPECT_EQ(m.set.find(slot::cu_segments)->desc.shape, (std::vector<std::int64_t>{5}));
    const std::int64_t rows = m.in.at(slot::q).desc.shape[0];
    EXPECT_EQ(rows > 256, std::string(option) == "/slack");
    EXPECT_EQ(m.set.find(slot::positions)->desc.shape, (std::vector<std::int64_t>{rows, 3}));
    EXPECT_EQ(m.set.find(slot::q_rope)->desc.shape, (std::vector<std::int64_t>{rows, 2, 80}));
    for (std::int64_t row = 0; row < rows; ++row) EXPECT_EQ(std::isfinite(m.in.at(slot::k).at(row, 1, 79)), row < 256);
  }
}

TEST(rope3d_inputs, the_problem_counts_items) {
  const problem p = make_problem(parse_case("rope3d/m3/g10x4x6_1x2x8/bf16/tokens.random/s0"));
  EXPECT_EQ(p.batch, 2);
  EXPECT_EQ(p.total_q, 256);
  EXPECT_EQ(p.max_q_len, 96);
  EXPECT_EQ(p.vit_window, 4);
  EXPECT_EQ(p.rope_theta, 1e4);
  EXPECT_EQ(make_problem(parse_case("rope3d/m3/g10x4x6/bf16/tokens.random/window0/s0")).vit_window, 0);
}

TEST(rope3d_inputs, cost_counts_rows_and_heads) {
  EXPECT_EQ(cost_triples(parse_case("rope3d/m3/g10x4x6/bf16/tokens.random/s0")), 240 * 32);
}

}  // namespace
}  // namespace msabench

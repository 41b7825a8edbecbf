// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "tests/kernels/each_plugin.h"
#include "tests/kernels/small_vit3d.h"

using namespace msabench::plugin_test;

namespace {

class vit3d : public each_plugin {};

MSABENCH_FOR_EACH_PLUGIN(vit3d);

}  // namespace

TEST_P(vit3d, every_type_stride_and_width) {
  for (const auto type : {fp32_type, bf16_type, fp16_type})
    for (const std::int64_t gap : {0, 8})
      for (const std::int32_t d : {80, 64, 5}) expect_right(small_vit3d({.d = d, .type = type, .gap = gap}));
}

TEST_P(vit3d, windows_and_remainders) {
  for (const std::int32_t window : {0, 1, 3, 4, 20}) expect_right(small_vit3d({.window = window}));
  expect_right(small_vit3d({.items = {{1, 4, 4}, {5, 2, 2}}}));
  expect_right(small_vit3d({.items = {{1, 2, 2}}}));
}

TEST_P(vit3d, no_items) { expect_right(small_vit3d({.items = {}})); }

TEST_P(vit3d, what_is_handed_back_changes_nothing_else) {
  for (const auto type : {fp32_type, bf16_type}) {
    small_vit3d whole({.type = type}), bare({.type = type}, true);
    expect_right(whole);
    session plan(plugin(), bare.problem);
    arguments args = bare.args();
    ASSERT_EQ(plan.run(args), MSABENCH_OK) << plugin()->last_error();
    EXPECT_TRUE(bare.rope.q_rope.untouched({0, 0, 0}));
    for (std::int64_t row = 0; row < whole.attention.tokens(); ++row)
      for (std::int64_t head = 0; head < whole.rope.shape.heads; ++head) {
        ASSERT_EQ(bare.attention.lse.get({row, head}), whole.attention.lse.get({row, head}));
        for (std::int64_t c = 0; c < whole.rope.shape.d; ++c)
          ASSERT_EQ(bare.attention.out.get({row, head, c}), whole.attention.out.get({row, head, c}));
      }
  }
}

TEST_P(vit3d, tensors_are_checked) {
  small_vit3d test;
  session made(plugin(), test.problem);
  const auto run_refusal = [&](msabench_slot slot) {
    arguments args = test.args();
    args.remove(slot);
    EXPECT_EQ(made.run(args), MSABENCH_INVALID_PROBLEM);
    EXPECT_TRUE(test.attention.out.untouched({0, 0, 0}));
    EXPECT_TRUE(test.rope.q_rope.untouched({0, 0, 0}));
    return std::string(plugin()->last_error());
  };
  EXPECT_EQ(run_refusal(MSABENCH_GRIDS).rfind("grids absent", 0), 0u);
  EXPECT_EQ(run_refusal(MSABENCH_V).rfind("v absent", 0), 0u);
  EXPECT_EQ(run_refusal(MSABENCH_OUT).rfind("out absent", 0), 0u);
  msabench_problem few = test.problem;
  few.total_q = 16;
  session for_few(plugin(), few);
  arguments args = test.args();
  EXPECT_EQ(for_few.run(args), MSABENCH_INVALID_PROBLEM);
  EXPECT_EQ(std::string(plugin()->last_error()).rfind("grids: 256 patches", 0), 0u) << plugin()->last_error();
}

// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>

#include "tests/kernels/each_plugin.h"
#include "tests/kernels/small_attend.h"

using namespace msabench::plugin_test;

namespace {

class dense : public each_plugin {};

small_attend dense_of(attend_shape shape) {
  shape.dense = true;
  return small_attend(std::move(shape));
}

MSABENCH_FOR_EACH_PLUGIN(dense);

}  // namespace

TEST_P(dense, every_layout_type_and_page_size) {
  for (const std::int32_t page_layout : {0, 1, 2})
    for (const std::int32_t page_size : {1, 8, 128})
      for (const auto type : {fp32_type, bf16_type, fp16_type}) {
        SCOPED_TRACE(std::to_string(page_layout) + " " + std::to_string(page_size));
        expect_right(
            dense_of({.page_layout = page_layout, .page_size = page_layout == 0 ? 0 : page_size, .type = type}));
      }
}

// 128 keys are taken at a time.
TEST_P(dense, every_length_around_its_tiles) {
  attend_shape shape{.hq = 2, .hkv = 1, .d = 4, .sequences = {}};
  for (const std::int32_t length : {1, 127, 128, 129, 255, 256, 257, 384, 400}) {
    shape.sequences.emplace_back(1, length);
    shape.sequences.emplace_back(std::min(length, 3), length);
  }
  expect_right(dense_of(shape));
}

TEST_P(dense, blocks_of_the_problem_have_no_meaning) {
  small_attend test = dense_of({.sequences = {{3, 300}}});
  test.problem.block = test.problem.topk = test.problem.local_blocks = 0;
  expect_right(test);
  test.problem.block = 1 << 30;
  test.problem.topk = -1;
  expect_right(test);
}

TEST_P(dense, padding_rows_are_empty) {
  small_attend test = dense_of({.sequences = {{1, 0}, {3, 2}, {1, 0}}});
  expect_right(test);
  for (const std::int64_t row : {0, 1, 4}) {
    EXPECT_EQ(test.lse.get({row, 3}), -std::numeric_limits<double>::infinity());
    EXPECT_EQ(test.out.get({row, 3, 15}), 0);
  }
  EXPECT_NE(test.lse.get({2, 3}), -std::numeric_limits<double>::infinity());
}

TEST_P(dense, declares_chains_of_its_tiles) {
  const small_attend test = dense_of({.sequences = {{1, 1000}}});
  session plan(plugin(), test.problem);
  // naive: 128 keys, then as many tiles; cpu: 128 keys, then 4 tiles in each of 2 chunks.
  const bool is_naive = GetParam().file == std::string("naive");
  EXPECT_EQ(plan.capability().numerics.chain_out, is_naive ? 128u + 8u : 128u + 4u + 2u);
  EXPECT_LE(plan.capability().numerics.chain_row_sum, 128u + 8u);
  const small_attend few = dense_of({.sequences = {{1, 9}}});
  session short_plan(plugin(), few.problem);
  EXPECT_EQ(short_plan.capability().numerics.chain_out, 9u);
}

TEST_P(dense, problems_and_tensors_are_checked) {
  small_attend test = dense_of({});
  msabench_problem problem = test.problem;
  problem.hq = 5;
  msabench_plan* plan = nullptr;
  EXPECT_EQ(plugin()->plan(&problem, &plan), MSABENCH_INVALID_PROBLEM);
  EXPECT_EQ(std::string(plugin()->last_error()).rfind("hq 5", 0), 0u) << plugin()->last_error();
  session made(plugin(), test.problem);
  arguments args = test.args();
  args.remove(MSABENCH_V);
  EXPECT_EQ(made.run(args), MSABENCH_INVALID_PROBLEM);
  EXPECT_EQ(std::string(plugin()->last_error()).rfind("v absent", 0), 0u) << plugin()->last_error();
  EXPECT_TRUE(test.out.untouched({0, 0, 0}));
}

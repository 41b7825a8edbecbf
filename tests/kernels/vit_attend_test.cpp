// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/kernels/each_plugin.h"
#include "tests/kernels/small_attend.h"

using namespace msabench::plugin_test;

namespace {

class vit_attend : public each_plugin {};

small_attend segments_of(const std::vector<std::int32_t>& lengths, attend_shape shape = {}) {
  shape.segments = true;
  shape.hq = shape.hkv = 3;
  shape.sequences.clear();
  for (const std::int32_t n : lengths) shape.sequences.emplace_back(n, n);
  return small_attend(std::move(shape));
}

MSABENCH_FOR_EACH_PLUGIN(vit_attend);

}  // namespace

TEST_P(vit_attend, every_type_and_stride) {
  for (const auto type : {fp32_type, bf16_type, fp16_type})
    for (const bool padded : {false, true})
      expect_right(segments_of({96, 96, 48}, {.d = 80, .type = type, .padded_strides = padded}));
}

// 128 keys are taken at a time, and so many tokens of a segment together.
TEST_P(vit_attend, every_length_around_its_tiles) {
  expect_right(segments_of({1, 4, 63, 64, 65}));
  expect_right(segments_of({127, 128, 129, 1, 257}, {.d = 8}));
  expect_right(segments_of({400}, {.d = 8}));
}

TEST_P(vit_attend, segments_may_be_empty_or_missing) {
  expect_right(segments_of({0, 5, 0, 0, 7, 0}));
  expect_right(segments_of({}));
  expect_right(segments_of({0}));
}

TEST_P(vit_attend, other_scales) { expect_right(segments_of({20, 12}, {.softmax_scale = 0.05})); }

TEST_P(vit_attend, blocks_of_the_problem_have_no_meaning) {
  small_attend test = segments_of({300, 20});
  test.problem.block = test.problem.topk = test.problem.local_blocks = 0;
  expect_right(test);
}

// A plan for many segments runs on fewer.
TEST_P(vit_attend, lengths_are_read_from_cu_segments) {
  small_attend test = segments_of({20, 12});
  test.problem.batch += 3;
  test.problem.max_kv_len += 200;
  test.problem.max_q_len += 200;
  expect_right(test);
}

TEST_P(vit_attend, problems_and_tensors_are_checked) {
  small_attend test = segments_of({20, 12});
  const auto refusal_of = [&](auto change) {
    msabench_problem problem = test.problem;
    change(problem);
    msabench_plan* plan = nullptr;
    EXPECT_NE(plugin()->plan(&problem, &plan), MSABENCH_OK);
    return std::string(plugin()->last_error());
  };
  EXPECT_EQ(refusal_of([](msabench_problem& p) { p.hq = 6; }).rfind("hq 6", 0), 0u);
  EXPECT_EQ(refusal_of([](msabench_problem& p) { p.page_layout = p.page_size = 1; }).rfind("page_layout 1", 0), 0u);
  EXPECT_EQ(refusal_of([](msabench_problem& p) { p.kv_scale = 1; }).rfind("kv_scale 1", 0), 0u);

  session made(plugin(), test.problem);
  const auto run_refusal = [&](msabench_slot slot, const buffer* instead) {
    arguments args = test.args();
    args.remove(slot);
    if (instead != nullptr) args.put(slot, *instead);
    EXPECT_EQ(made.run(args), MSABENCH_INVALID_PROBLEM);
    EXPECT_TRUE(test.out.untouched({0, 0, 0}));
    return std::string(plugin()->last_error());
  };
  EXPECT_EQ(run_refusal(MSABENCH_CU_SEGMENTS, nullptr).rfind("cu_segments absent", 0), 0u);
  const buffer none(int32_type, {0}), many(int32_type, {9});
  EXPECT_EQ(run_refusal(MSABENCH_CU_SEGMENTS, &none).rfind("cu_segments.shape[0] 0", 0), 0u);
  EXPECT_EQ(run_refusal(MSABENCH_CU_SEGMENTS, &many).rfind("cu_segments.shape[0] 9", 0), 0u);
  test.cu_seqlens_q.set({2}, 50);
  EXPECT_EQ(run_refusal(MSABENCH_Q, &test.q).rfind("q.shape[0] 34", 0), 0u);
}

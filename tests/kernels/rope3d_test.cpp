// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "tests/kernels/each_plugin.h"
#include "tests/kernels/small_rope3d.h"

using namespace msabench::plugin_test;

namespace {

class rope3d : public each_plugin {};

MSABENCH_FOR_EACH_PLUGIN(rope3d);

}  // namespace

TEST_P(rope3d, every_type_stride_and_width) {
  for (const auto type : {fp32_type, bf16_type, fp16_type})
    for (const std::int64_t gap : {0, 8})
      for (const std::int32_t d : {80, 64, 6, 5, 7}) expect_right(small_rope3d({.d = d, .type = type, .gap = gap}));
}

TEST_P(rope3d, check_values_of_the_contract) {
  small_rope3d video({.items = {{10, 4, 6}}}), mixed({.items = {{1, 4, 4}, {5, 2, 2}}});
  EXPECT_EQ(video.ends, (std::vector<std::int32_t>{0, 96, 192, 240}));
  EXPECT_EQ(mixed.ends, (std::vector<std::int32_t>{0, 16, 32, 36}));
  expect_right(video);
  expect_right(mixed);
}

TEST_P(rope3d, windows) {
  for (const std::int32_t window : {0, 1, 3, 4, 20}) expect_right(small_rope3d({.window = window}));
}

TEST_P(rope3d, no_items) { expect_right(small_rope3d({.items = {}})); }

TEST_P(rope3d, other_bases) {
  expect_right(small_rope3d({.theta = 100}));
  small_rope3d usual;
  usual.problem.rope_theta = 0;
  expect_right(usual);
}

TEST_P(rope3d, problems_and_tensors_are_checked) {
  small_rope3d test;
  const auto refusal_of = [&](auto change) {
    msabench_problem problem = test.problem;
    change(problem);
    msabench_plan* plan = nullptr;
    EXPECT_NE(plugin()->plan(&problem, &plan), MSABENCH_OK);
    return std::string(plugin()->last_error());
  };
  EXPECT_EQ(refusal_of([](msabench_problem& p) { p.hq = 6; }).rfind("hq 6", 0), 0u);
  EXPECT_EQ(refusal_of([](msabench_problem& p) { p.vit_window = -1; }).rfind("vit_window -1", 0), 0u);
  EXPECT_EQ(refusal_of([](msabench_problem& p) { p.rope_theta = -1; }).rfind("rope_theta", 0), 0u);
  EXPECT_EQ(refusal_of([](msabench_problem& p) { p.kv = fp16_type; }).rfind("kv {2,16,1}", 0), 0u);

  session made(plugin(), test.problem);
  const auto run_refusal = [&](msabench_slot slot, const buffer* instead) {
    arguments args = test.args();
    args.remove(slot);
    if (instead != nullptr) args.put(slot, *instead);
    EXPECT_EQ(made.run(args), MSABENCH_INVALID_PROBLEM);
    EXPECT_TRUE(test.q_rope.untouched({0, 0, 0}));
    return std::string(plugin()->last_error());
  };
  EXPECT_EQ(run_refusal(MSABENCH_GRIDS, nullptr).rfind("grids absent", 0), 0u);
  const buffer many(int32_type, {3, 3}), few(int32_type, {2});
  EXPECT_EQ(run_refusal(MSABENCH_GRIDS, &many).rfind("grids.shape[0] 3", 0), 0u);
  EXPECT_EQ(run_refusal(MSABENCH_CU_SEGMENTS, &few).rfind("cu_segments.shape[0] 2", 0), 0u);
  test.grids.set({1, 0}, 2);
  EXPECT_EQ(run_refusal(MSABENCH_Q, &test.q).rfind("q.shape[0] 258", 0), 0u);
}

// SPDX-License-Identifier: Apache-2.0
// Keys and values in e4m3 with scales: naive has them, others refuse them by name.
#include <gtest/gtest.h>

#include "tests/kernels/each_plugin.h"
#include "tests/kernels/small_scaled.h"

using namespace msabench::plugin_test;

namespace {

class scaled : public each_plugin {};
MSABENCH_FOR_EACH_PLUGIN(scaled);

}  // namespace

TEST_P(scaled, keys_and_values_count_times_their_scales) {
  for (const std::int32_t form : {1, 2})
    for (const bool paged : {false, true}) {
      small_scaled test(form, paged);
      if (GetParam().file == std::string("naive")) {
        expect_right(test);
        continue;
      }
      EXPECT_EQ(session(plugin(), test.problem).status(), MSABENCH_UNSUPPORTED);
      EXPECT_EQ(std::string(plugin()->last_error()).rfind("kv ", 0), 0u) << plugin()->last_error();
    }
}

TEST_P(scaled, scales_of_another_shape_are_refused) {
  if (GetParam().file != std::string("naive")) return;
  small_scaled test(2, true);
  session plan(plugin(), test.problem);
  ASSERT_EQ(plan.status(), MSABENCH_OK);
  arguments args = test.args();
  std::int64_t shape[3] = {args.at(MSABENCH_V_SCALE).shape[0], 1, 8};
  args.at(MSABENCH_V_SCALE).shape = shape;
  EXPECT_EQ(plan.run(args), MSABENCH_INVALID_PROBLEM);
  EXPECT_EQ(std::string(plugin()->last_error()).rfind("v_scale.shape[1] 1", 0), 0u) << plugin()->last_error();
  args.remove(MSABENCH_V_SCALE);
  EXPECT_EQ(plan.run(args), MSABENCH_INVALID_PROBLEM);
  EXPECT_EQ(std::string(plugin()->last_error()).rfind("v_scale absent", 0), 0u) << plugin()->last_error();
}

TEST_P(scaled, a_scale_without_e4m3_or_of_no_known_form_is_refused) {
  if (GetParam().file != std::string("naive")) return;
  small_scaled test(2, false);
  test.problem.kv_scale = 3;
  EXPECT_EQ(session(plugin(), test.problem).status(), MSABENCH_UNSUPPORTED);
  EXPECT_EQ(std::string(plugin()->last_error()).rfind("kv_scale 3", 0), 0u) << plugin()->last_error();
  test.problem.kv_scale = 2, test.problem.kv = test.problem.q;
  EXPECT_EQ(session(plugin(), test.problem).status(), MSABENCH_UNSUPPORTED);
  EXPECT_EQ(std::string(plugin()->last_error()).rfind("kv_scale 2", 0), 0u) << plugin()->last_error();
}

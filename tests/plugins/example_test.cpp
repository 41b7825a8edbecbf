// SPDX-License-Identifier: Apache-2.0
// The example plugins give right results on what they say they support, and a text on everything else.
#include <gtest/gtest.h>

#include "tests/kernels/small_attend.h"
#include "tests/kernels/small_select.h"

using namespace msabench::plugin_test;

namespace {

class examples : public testing::TestWithParam<const char*> {
 protected:
  const msabench_plugin* plugin = load_plugin(std::string(MSABENCH_TEST_PLUGIN_DIR) + "/" + GetParam() + ".so");

  void expect_right(small_attend& test) {
    session plan(plugin, test.problem);
    ASSERT_EQ(plan.status(), MSABENCH_OK) << plugin->last_error();
    arguments args = test.args();
    ASSERT_EQ(plan.run(args), MSABENCH_OK) << plugin->last_error();
    EXPECT_EQ(test.fault().value_or("none"), "none");
  }
};

}  // namespace

TEST_P(examples, layouts_and_types) {
  for (const auto type : {fp32_type, bf16_type}) {
    for (const std::int32_t page_size : {0, 1, 8, 128}) {
      for (const bool padded : {false, true}) {
        small_attend test(
            {.page_layout = page_size == 0 ? 0 : 1, .page_size = page_size, .type = type, .padded_strides = padded});
        expect_right(test);
      }
    }
  }
}

TEST_P(examples, shapes_short_rows_and_padding_rows) {
  small_attend odd({.hq = 6, .hkv = 3, .d = 7, .block = 5, .topk = 2});
  expect_right(odd);
  small_attend brief({.topk = 6, .sequences = {{9, 80}, {1, 0}, {4, 4}}, .form = MSABENCH_FORM_SHORT});
  expect_right(brief);
  small_attend nobody({.sequences = {}});
  expect_right(nobody);
  small_attend scaled({.softmax_scale = 0.05});
  expect_right(scaled);
}

TEST_P(examples, refuses_the_rest_with_a_text) {
  const auto refused = [this](msabench_problem problem, msabench_status status, const std::string& field) {
    session plan(plugin, problem);
    EXPECT_EQ(plan.status(), status) << field;
    EXPECT_EQ(std::string(plugin->last_error()).rfind(field, 0), 0u) << plugin->last_error();
  };
  refused(small_select({}).problem, MSABENCH_UNSUPPORTED, "op 3");
  refused(small_attend({.page_layout = 2, .page_size = 8}).problem, MSABENCH_UNSUPPORTED, "page_layout 2");
  refused(small_attend({.form = MSABENCH_FORM_LENIENT}).problem, MSABENCH_UNSUPPORTED, "profile.in_id_form 2");
  msabench_problem problem = small_attend({}).problem;
  problem.topk = 0;
  refused(problem, MSABENCH_INVALID_PROBLEM, "topk 0");
  problem = small_attend({}).problem;
  problem.q = problem.kv = problem.out = {2, 16, 1};
  refused(problem, MSABENCH_UNSUPPORTED, "q");
}

TEST_P(examples, refuses_tensors_before_it_writes) {
  small_attend test({});
  session plan(plugin, test.problem);
  for (const auto slot : {MSABENCH_Q, MSABENCH_K, MSABENCH_V, MSABENCH_IDS, MSABENCH_OUT, MSABENCH_KV_LENS,
                          MSABENCH_CU_SEQLENS_Q, MSABENCH_CU_SEQLENS_KV}) {
    arguments args = test.args();
    args.remove(slot);
    EXPECT_EQ(plan.run(args), MSABENCH_INVALID_PROBLEM) << slot;
    EXPECT_NE(std::string(plugin->last_error()), "");
    args = test.args();
    args.at(slot).data = nullptr;
    EXPECT_EQ(plan.run(args), MSABENCH_INVALID_PROBLEM) << slot;
    args = test.args();
    args.at(slot).dtype = {2, 64, 1};
    EXPECT_EQ(plan.run(args), MSABENCH_INVALID_PROBLEM) << slot;
  }
  EXPECT_TRUE(test.out.untouched({0, 0, 0}));
}

INSTANTIATE_TEST_SUITE_P(both, examples, testing::Values("example_c", "example_cpp"),
                         [](const auto& each) { return std::string(each.param); });

// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>

#include "tests/kernels/each_plugin.h"
#include "tests/kernels/small_combine.h"

using namespace msabench::plugin_test;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

class combine : public each_plugin {
 protected:
  void run(small_combine& test, msabench_status wanted = MSABENCH_OK) {
    session plan(plugin(), test.problem);
    ASSERT_EQ(plan.status(), MSABENCH_OK) << plugin()->last_error();
    arguments args = test.args();
    ASSERT_EQ(plan.run(args), wanted) << plugin()->last_error();
  }
};

MSABENCH_FOR_EACH_PLUGIN(combine);

}  // namespace

TEST_P(combine, types_parts_and_strides) {
  for (const auto type : {fp32_type, bf16_type, fp16_type})
    for (const auto partial : {fp32_type, type})
      for (const std::int64_t parts : {1, 2, 5, 40})
        for (const std::int64_t gap : {0, 8}) {
          SCOPED_TRACE(std::to_string(type.code) + " " + std::to_string(parts) + " " + std::to_string(gap));
          small_combine test(parts, 6, 3, 24, partial, type, gap);
          run(test);
          EXPECT_EQ(test.fault().value_or("none"), "none");
        }
}

TEST_P(combine, no_parts_and_no_rows) {
  small_combine nothing(0, 5, 2, 16, fp32_type, bf16_type);
  run(nothing);
  for (std::int64_t row = 0; row < 5; ++row) {
    EXPECT_EQ(nothing.lse.get({row, 1}), -infinity);
    EXPECT_EQ(nothing.out.get({row, 1, 15}), 0);
  }
  small_combine no_rows(4, 0, 2, 16, fp32_type, bf16_type);
  run(no_rows);
  EXPECT_TRUE(no_rows.out.guards_intact());
}

TEST_P(combine, weights_far_apart_and_far_from_zero) {
  small_combine test(2, 1, 1, 8, fp32_type, fp32_type);
  for (const double level : {0.0, 3000.0, -3000.0}) {
    for (std::int64_t c = 0; c < 8; ++c) {
      test.partial_out.set({0, 0, 0, c}, 1);
      test.partial_out.set({1, 0, 0, c}, 5);
    }
    test.partial_lse.set({0, 0, 0}, level);
    test.partial_lse.set({1, 0, 0}, level - 200);
    run(test);
    EXPECT_EQ(test.out.get({0, 0, 3}), 1);
    EXPECT_EQ(test.lse.get({0, 0}), level);
  }
}

TEST_P(combine, declares_its_output_store) {
  small_combine test(2, 1, 1, 8, fp32_type, fp16_type);
  session plan(plugin(), test.problem);
  EXPECT_EQ(plan.capability().numerics.out_store.code, fp16_type.code);
  EXPECT_EQ(plan.capability().numerics.out_store.bits, 16);
}

TEST_P(combine, refusals_name_the_field) {
  const auto refused = [this](const char* text, msabench_status status, auto change) {
    small_combine test(3, 2, 2, 16, fp32_type, bf16_type);
    change(test);
    session plan(plugin(), test.problem);
    EXPECT_EQ(plan.status(), status) << text;
    EXPECT_EQ(std::string(plugin()->last_error()).rfind(text, 0), 0u) << plugin()->last_error();
  };
  refused("hq 0", MSABENCH_INVALID_PROBLEM, [](auto& t) { t.problem.hq = 0; });
  refused("d 0", MSABENCH_INVALID_PROBLEM, [](auto& t) { t.problem.d = 0; });
  refused("splits -1", MSABENCH_INVALID_PROBLEM, [](auto& t) { t.problem.splits = -1; });
  refused("partial {10,8,1}", MSABENCH_UNSUPPORTED, [](auto& t) { t.problem.partial = {10, 8, 1}; });
  refused("out {0,0,0}", MSABENCH_UNSUPPORTED, [](auto& t) { t.problem.out = {}; });
}

TEST_P(combine, wrong_tensors_are_refused_before_anything_is_written) {
  small_combine test(3, 2, 2, 16, fp32_type, bf16_type), more(6, 2, 2, 16, fp32_type, bf16_type);
  session plan(plugin(), test.problem);
  const auto refused = [&](const char* text, auto change) {
    arguments args = test.args();
    change(args);
    EXPECT_EQ(plan.run(args), MSABENCH_INVALID_PROBLEM) << text;
    EXPECT_EQ(std::string(plugin()->last_error()).rfind(text, 0), 0u) << plugin()->last_error();
    EXPECT_TRUE(test.out.untouched({0, 0, 0}));
  };
  refused("lse absent", [](auto& a) { a.remove(MSABENCH_LSE); });
  refused("partial_lse absent", [](auto& a) { a.remove(MSABENCH_PARTIAL_LSE); });
  refused("partial_out.rank 2", [](auto& a) { a.at(MSABENCH_PARTIAL_OUT).rank = 2; });
  refused("partial_lse.shape[0] 6", [&](auto& a) { a.put(MSABENCH_PARTIAL_LSE, more.partial_lse); });
  refused("partial_out.shape[0] 6", [&](auto& a) {
    a.put(MSABENCH_PARTIAL_OUT, more.partial_out);
    a.put(MSABENCH_PARTIAL_LSE, more.partial_lse);
  });
}

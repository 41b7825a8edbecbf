// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/each_plugin.h"
#include "tests/kernels/small_norm_rope.h"

using namespace msabench::plugin_test;

namespace {

class norm_rope : public each_plugin {
 protected:
  void expect_right(norm_rope_shape shape) { each_plugin::expect_right(small_norm_rope(std::move(shape))); }
};

MSABENCH_FOR_EACH_PLUGIN(norm_rope);

}  // namespace

TEST_P(norm_rope, types_and_strides) {
  for (const auto type : {fp32_type, bf16_type, fp16_type})
    for (const std::int64_t gap : {0, 8}) {
      SCOPED_TRACE(std::to_string(type.code) + "," + std::to_string(type.bits) + " " + std::to_string(gap));
      expect_right({.type = type, .gap = gap});
    }
}

TEST_P(norm_rope, heads_dimensions_and_rotated_dims) {
  expect_right({.rope_dims = 0});
  expect_right({.rope_dims = 2});
  expect_right({.d = 16, .rope_dims = 16});
  expect_right({.hq = 1, .hkv = 1, .hi = 1, .d = 8, .di = 40, .rope_dims = 8});
  expect_right({.hq = 16, .hkv = 1, .hi = 1, .d = 128, .di = 128, .rope_dims = 64});
}

TEST_P(norm_rope, padding_and_empty_batches) {
  expect_right({.sequences = {{1, 0}, {2, 1}, {1, 0}}});
  expect_right({.sequences = {{0, 0}, {0, 7}}});
  expect_right({.sequences = {}});
}

TEST_P(norm_rope, declares_its_output_store) {
  small_norm_rope test({.type = fp16_type});
  session plan(plugin(), test.problem);
  EXPECT_EQ(plan.capability().numerics.out_store.code, fp16_type.code);
  EXPECT_EQ(plan.capability().numerics.out_store.bits, 16);
  EXPECT_EQ(plan.capability().profile.round_after_norm, 0);
}

TEST_P(norm_rope, refusals_name_the_field) {
  const auto refused = [this](const char* text, msabench_status status, auto change) {
    small_norm_rope test({});
    change(test.problem);
    session plan(plugin(), test.problem);
    EXPECT_EQ(plan.status(), status) << text;
    EXPECT_EQ(std::string(plugin()->last_error()).rfind(text, 0), 0u) << plugin()->last_error();
  };
  refused("hi 0", MSABENCH_INVALID_PROBLEM, [](auto& p) { p.hi = 0; });
  refused("di 0", MSABENCH_INVALID_PROBLEM, [](auto& p) { p.di = 0; });
  refused("rope_dims 3", MSABENCH_INVALID_PROBLEM, [](auto& p) { p.rope_dims = 3; });
  refused("rope_dims 18", MSABENCH_INVALID_PROBLEM, [](auto& p) { p.rope_dims = 18; });
  refused("rope_dims -2", MSABENCH_INVALID_PROBLEM, [](auto& p) { p.rope_dims = -2; });
  refused("norm_eps", MSABENCH_INVALID_PROBLEM, [](auto& p) { p.norm_eps = std::nan(""); });
  refused("norm_eps", MSABENCH_INVALID_PROBLEM, [](auto& p) { p.norm_eps = -1; });
  refused("kv {2,32,1}", MSABENCH_UNSUPPORTED, [](auto& p) { p.kv = fp32_type; });
  refused("k_idx {10,8,1}", MSABENCH_UNSUPPORTED, [](auto& p) { p.k_idx = {10, 8, 1}; });
}

TEST_P(norm_rope, wrong_tensors_are_refused_before_anything_is_written) {
  small_norm_rope test({}), wider({.rope_dims = 16});
  session plan(plugin(), test.problem);
  const auto refused = [&](const char* text, auto change) {
    arguments args = test.args();
    change(args);
    EXPECT_EQ(plan.run(args), MSABENCH_INVALID_PROBLEM) << text;
    EXPECT_EQ(std::string(plugin()->last_error()).rfind(text, 0), 0u) << plugin()->last_error();
    EXPECT_TRUE(test.y[0].untouched({0, 0, 0}));
  };
  refused("k_idx_norm absent", [](auto& a) { a.remove(MSABENCH_K_IDX_NORM); });
  refused("q_idx_rope absent", [](auto& a) { a.remove(MSABENCH_Q_IDX_ROPE); });
  refused("cos_sin absent", [](auto& a) { a.remove(MSABENCH_COS_SIN); });
  refused("cos_sin.shape[1] 16", [&](auto& a) { a.put(MSABENCH_COS_SIN, wider.cos_sin); });
  refused("k_idx.rank 3", [&](auto& a) { a.put(MSABENCH_K_IDX, test.x[2]); });
  refused("q_norm.shape[0] 16", [&](auto& a) { a.put(MSABENCH_Q_NORM, test.weight[2]); });
  refused("kv_lens absent", [](auto& a) { a.remove(MSABENCH_KV_LENS); });
}

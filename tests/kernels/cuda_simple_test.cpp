// SPDX-License-Identifier: Apache-2.0
// What the operators of plugin `cuda` without matrix products say of themselves, which needs no device.
#include <gtest/gtest.h>

#include <string>

#include "tests/kernels/cuda_session.h"

using namespace msabench::plugin_test;

namespace {

constexpr msabench_dtype bf16{4, 16, 1}, fp16{2, 16, 1}, fp32{2, 32, 1}, fp64{2, 64, 1};

class cuda_simple : public cuda_plugin {
 protected:
  msabench_status ask(const msabench_problem& p) {
    msabench_capability answer{};
    answer.struct_size = sizeof answer;
    return plugin_->query(&p, &answer);
  }

  static msabench_problem combine(msabench_dtype partial, msabench_dtype out) {
    msabench_problem p = empty_problem(MSABENCH_OP_COMBINE);
    p.hq = 64;
    p.d = 128;
    p.total_q = 8;
    p.splits = 4;
    p.partial = partial;
    p.out = out;
    return p;
  }

  static msabench_problem vision(msabench_op op, msabench_dtype type) {
    msabench_problem p = empty_problem(op);
    p.hq = p.hkv = 16;
    p.d = 80;
    p.batch = 2;
    p.total_q = p.max_q_len = p.total_kv = p.max_kv_len = 256;
    p.vit_window = 4;
    p.q = p.kv = p.out = type;
    return p;
  }
};

TEST_F(cuda_simple, partial_results_have_any_float_type) {
  for (const auto partial : {bf16, fp16, fp32})
    for (const auto out : {bf16, fp16, fp32}) EXPECT_EQ(ask(combine(partial, out)), MSABENCH_OK);
  EXPECT_EQ(ask(combine(fp64, bf16)), MSABENCH_UNSUPPORTED);
  EXPECT_EQ(std::string(plugin_->last_error()).rfind("partial {2,64,1}:", 0), 0u) << plugin_->last_error();
  EXPECT_EQ(ask(combine(bf16, fp64)), MSABENCH_UNSUPPORTED);
}

TEST_F(cuda_simple, matrix_units_read_16_bits_and_rotations_all) {
  EXPECT_EQ(ask(vision(MSABENCH_OP_ROPE3D, fp32)), MSABENCH_OK);
  EXPECT_EQ(ask(vision(MSABENCH_OP_VIT3D, bf16)), MSABENCH_OK);
  EXPECT_EQ(ask(vision(MSABENCH_OP_VIT3D, fp32)), MSABENCH_UNSUPPORTED);
  EXPECT_EQ(std::string(plugin_->last_error()).rfind("q {2,32,1}:", 0), 0u) << plugin_->last_error();
}

TEST_F(cuda_simple, vit3d_has_room_for_what_a_caller_leaves_out) {
  const msabench_problem p = vision(MSABENCH_OP_VIT3D, bf16);
  msabench_plan* plan = nullptr;
  ASSERT_EQ(plugin_->plan(&p, &plan), MSABENCH_OK) << plugin_->last_error();
  std::uint64_t bytes = 0;
  std::uint32_t alignment = 0;
  ASSERT_EQ(plugin_->workspace(plan, &bytes, &alignment), MSABENCH_OK);
  // Rotated q and k, positions, and boundaries of as many segments as there can be.
  EXPECT_GE(bytes, 256u * (2 * 16 * 80 * 2 + 3 * 4) + (256 / 4 + 1) * 4);
  EXPECT_EQ(alignment, 256u);
  plugin_->destroy(plan);
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
// What training with plugin `cuda` says of itself, which needs no device.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/kernels/cuda_session.h"

using namespace msabench::plugin_test;

namespace {

constexpr msabench_dtype bf16{4, 16, 1}, fp16{2, 16, 1}, fp32{2, 32, 1};

msabench_problem m3(msabench_op op, std::int64_t tokens) {
  msabench_problem p = empty_problem(op);
  p.hq = 64;
  p.hkv = p.hi = 4;
  p.d = p.di = 128;
  p.q = p.kv = p.out = p.q_idx = p.k_idx = bf16;
  p.grad = fp32;
  p.batch = 1;
  p.total_q = p.max_q_len = p.max_kv_len = p.total_kv = tokens;
  p.kl_coeff = 1;
  if (op != MSABENCH_OP_DENSE_BACKWARD) {
    p.block = 128;
    p.topk = 16;
    p.local_blocks = 1;
  }
  return p;
}

class cuda_training : public cuda_plugin {
 protected:
  msabench_status ask(const msabench_problem& p, msabench_capability* answer = nullptr) {
    msabench_capability unread{};
    if (answer == nullptr) answer = &unread;
    answer->struct_size = sizeof *answer;
    return plugin_->query(&p, answer);
  }
};

TEST_F(cuda_training, refuses_by_field_and_value) {
  const struct {
    msabench_op op;
    const char* text;
    std::function<void(msabench_problem&)> plant;
  } faults[] = {
      {MSABENCH_OP_ATTEND_BACKWARD, "d 20:", [](auto& p) { p.d = 20; }},
      {MSABENCH_OP_DENSE_BACKWARD, "d 136:", [](auto& p) { p.d = 136; }},
      {MSABENCH_OP_ATTEND_BACKWARD, "topk 4097:", [](auto& p) { p.topk = 4097; }},
      {MSABENCH_OP_ATTEND_BACKWARD, "q {2,32,1}:", [](auto& p) { p.q = p.kv = p.out = fp32; }},
      {MSABENCH_OP_DENSE_BACKWARD, "total_q 33554432:", [](auto& p) { p.total_q = 1 << 25; }},
      {MSABENCH_OP_KL, "d 4:", [](auto& p) { p.d = 4; }},
      {MSABENCH_OP_KL, "di 132:", [](auto& p) { p.di = 132; }},
      {MSABENCH_OP_KL, "hq 68:", [](auto& p) { p.hq = 68; }},
      {MSABENCH_OP_KL, "topk 4097:", [](auto& p) { p.topk = 4097; }},
  };
  for (const auto& fault : faults) {
    SCOPED_TRACE(fault.text);
    msabench_problem p = m3(fault.op, 4096);
    fault.plant(p);
    EXPECT_EQ(ask(p), MSABENCH_UNSUPPORTED);
    EXPECT_EQ(std::string(plugin_->last_error()).rfind(fault.text, 0), 0u) << plugin_->last_error();
    msabench_plan* plan = nullptr;
    EXPECT_EQ(plugin_->plan(&p, &plan), MSABENCH_UNSUPPORTED);
  }
}

TEST_F(cuda_training, takes_what_the_limits_allow) {
  const std::function<void(msabench_problem&)> plants[] = {
      [](msabench_problem& p) { p.d = 8; },
      [](msabench_problem& p) { p.topk = 4096; },
      [](msabench_problem& p) { p.block = 5; },
      [](msabench_problem& p) { p.grad = bf16; },
      [](msabench_problem& p) { p.total_q = (1 << 25) - 1; },
      [](msabench_problem& p) { p.q = p.kv = p.out = p.q_idx = p.k_idx = fp16; }};
  for (const auto op : {MSABENCH_OP_ATTEND_BACKWARD, MSABENCH_OP_KL})
    for (const auto& plant : plants) {
      msabench_problem p = m3(op, 4096);
      plant(p);
      EXPECT_EQ(ask(p), MSABENCH_OK) << plugin_->last_error();
    }
}

TEST_F(cuda_training, declares_short_operands_and_repeats) {
  for (const auto op : {MSABENCH_OP_ATTEND_BACKWARD, MSABENCH_OP_DENSE_BACKWARD, MSABENCH_OP_KL}) {
    msabench_capability answer{};
    ASSERT_EQ(ask(m3(op, 4096), &answer), MSABENCH_OK) << plugin_->last_error();
    EXPECT_EQ(answer.numerics.ds_operand.bits, op == MSABENCH_OP_KL ? 19 : 16);
    EXPECT_EQ(answer.numerics.p_operand.bits, op == MSABENCH_OP_KL ? 32 : 16);
    EXPECT_EQ(answer.numerics.pv_acc.bits, 32);
    EXPECT_EQ(answer.profile.repeatable, 1);
    EXPECT_EQ(answer.profile.graph_safe, 1);
  }
}

// Nothing grows with the product of queries and keys.
TEST_F(cuda_training, scratch_is_linear_in_tokens) {
  for (const auto op : {MSABENCH_OP_ATTEND_BACKWARD, MSABENCH_OP_DENSE_BACKWARD, MSABENCH_OP_KL}) {
    const std::uint64_t once = workspace_bytes(m3(op, 1 << 18)), twice = workspace_bytes(m3(op, 1 << 19));
    EXPECT_GT(once, 0u);
    EXPECT_LE(twice, 2 * once + (std::uint64_t{1} << 26)) << op;
  }
}

}  // namespace

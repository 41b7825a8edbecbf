// SPDX-License-Identifier: Apache-2.0
// What attention of plugin `cuda` says of itself, which needs no device.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/kernels/cuda_session.h"

using namespace msabench::plugin_test;

namespace {

constexpr msabench_dtype bf16{4, 16, 1}, fp32{2, 32, 1};

msabench_problem m3(msabench_op op, std::int64_t tokens, std::int64_t context) {
  msabench_problem p = empty_problem(op);
  p.hq = 64;
  p.hkv = 4;
  p.d = 128;
  p.q = p.kv = p.out = bf16;
  p.batch = 1;
  p.total_q = p.max_q_len = tokens;
  p.max_kv_len = p.total_kv = context;
  if (op == MSABENCH_OP_ATTEND) {
    p.block = 128;
    p.topk = 16;
    p.local_blocks = 1;
  }
  return p;
}

class cuda_attention : public cuda_plugin {
 protected:
  msabench_capability ask(const msabench_problem& p) {
    msabench_capability answer{};
    answer.struct_size = sizeof answer;
    EXPECT_EQ(plugin_->query(&p, &answer), MSABENCH_OK) << plugin_->last_error();
    return answer;
  }
};

TEST_F(cuda_attention, refuses_by_field_and_value) {
  const struct {
    const char* text;
    std::function<void(msabench_problem&)> plant;
  } faults[] = {
      {"d 20:", [](auto& p) { p.d = 20; }},           {"d 136:", [](auto& p) { p.d = 136; }},
      {"hq 68:", [](auto& p) { p.hq = 68; }},         {"block 20:", [](auto& p) { p.block = 20; }},
      {"topk 1025:", [](auto& p) { p.topk = 1025; }}, {"q {2,32,1}:", [](auto& p) { p.q = p.kv = p.out = fp32; }},
  };
  for (const auto& fault : faults) {
    SCOPED_TRACE(fault.text);
    msabench_problem p = m3(MSABENCH_OP_ATTEND, 1, 8192);
    fault.plant(p);
    msabench_capability answer{};
    answer.struct_size = sizeof answer;
    EXPECT_EQ(plugin_->query(&p, &answer), MSABENCH_UNSUPPORTED);
    EXPECT_EQ(std::string(plugin_->last_error()).rfind(fault.text, 0), 0u) << plugin_->last_error();
    msabench_plan* plan = nullptr;
    EXPECT_EQ(plugin_->plan(&p, &plan), MSABENCH_UNSUPPORTED);
  }
}

TEST_F(cuda_attention, takes_what_the_limits_allow) {
  for (const auto& plant : {+[](msabench_problem& p) { p.d = 8; }, +[](msabench_problem& p) { p.topk = 1024; },
                            +[](msabench_problem& p) { p.block = 8; }, +[](msabench_problem& p) { p.hq = 4; }}) {
    msabench_problem p = m3(MSABENCH_OP_ATTEND, 3, 8192);
    plant(p);
    ask(p);
  }
}

TEST_F(cuda_attention, declares_rounded_weights_and_exact_sums) {
  for (const auto op : {MSABENCH_OP_ATTEND, MSABENCH_OP_DENSE}) {
    const msabench_capability answer = ask(m3(op, 1, 1 << 20));
    EXPECT_EQ(answer.numerics.p_operand.bits, 16);
    EXPECT_EQ(answer.numerics.pv_acc.bits, 32);
    EXPECT_EQ(answer.numerics.partial_store.bits, 32);
    EXPECT_EQ(answer.numerics.lse_from_rounded_p, 0);
    EXPECT_EQ(answer.profile.batch_invariant, op == MSABENCH_OP_ATTEND);
    EXPECT_EQ(answer.profile.graph_safe, 1);
    // Not a million additions in a row.
    EXPECT_LT(answer.numerics.chain_out, 8192u);
    EXPECT_LT(answer.numerics.chain_row_sum, 8192u);
  }
}

// The project promises 256 MB at a context of a million tokens.
TEST_F(cuda_attention, takes_little_scratch) {
  for (const auto op : {MSABENCH_OP_ATTEND, MSABENCH_OP_DENSE})
    for (const std::int64_t tokens : {1, 16, 128, 8192, 1 << 20}) {
      EXPECT_LE(workspace_bytes(m3(op, tokens, 1 << 20)), 256u << 20) << op << " with " << tokens;
    }
}

}  // namespace

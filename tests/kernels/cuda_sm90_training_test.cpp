// SPDX-License-Identifier: Apache-2.0
// What training with plugin `cuda_sm90` says of itself, which needs no device.
#include <gtest/gtest.h>

#include <functional>

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

msabench_problem warm(msabench_problem p) {
  p.kl_warm_up = 1;
  p.block = p.topk = p.local_blocks = 0;
  return p;
}

class cuda_sm90_training : public cuda_plugin {
 protected:
  void SetUp() override {
    cuda_plugin::SetUp();
    portable_ = plugin_;
    plugin_ = load_plugin(plugin_path("cuda_sm90"), 2, {2, 0});
    ASSERT_NE(plugin_, nullptr);
  }
  /// By its workspace: kernels that differ keep something else.
  bool is_portable(const msabench_problem& p) {
    const std::uint64_t own = workspace_bytes(p);
    std::swap(plugin_, portable_);
    const std::uint64_t portable = workspace_bytes(p);
    std::swap(plugin_, portable_);
    return own == portable;
  }

  const msabench_plugin* portable_ = nullptr;
};

TEST_F(cuda_sm90_training, has_kernels_for_m3) {
  for (const msabench_op op : {MSABENCH_OP_ATTEND_BACKWARD, MSABENCH_OP_DENSE_BACKWARD, MSABENCH_OP_KL}) {
    SCOPED_TRACE(op);
    msabench_problem p = m3(op, 8192);
    EXPECT_FALSE(is_portable(p));
    p.q = p.kv = p.out = p.q_idx = p.k_idx = fp16;
    EXPECT_FALSE(is_portable(p));
  }
  EXPECT_FALSE(is_portable(warm(m3(MSABENCH_OP_KL, 8192))));
}

TEST_F(cuda_sm90_training, leaves_to_the_portable_kernels_what_it_does_not_take) {
  const struct {
    msabench_op op;
    std::function<void(msabench_problem&)> plant;
  } others[] = {
      {MSABENCH_OP_ATTEND_BACKWARD, [](auto& p) { p.d = 64; }},
      {MSABENCH_OP_ATTEND_BACKWARD, [](auto& p) { p.block = 64; }},
      {MSABENCH_OP_DENSE_BACKWARD, [](auto& p) { p.hq = 8; }},
      {MSABENCH_OP_KL, [](auto& p) { p.d = 64; }},
      {MSABENCH_OP_KL, [](auto& p) { p.di = 64; }},
      {MSABENCH_OP_KL, [](auto& p) { p.block = 64; }},
      {MSABENCH_OP_KL, [](auto& p) { p.hq = 32; }},
      {MSABENCH_OP_KL, [](auto& p) { p.softmax_scale = -1; }},
      {MSABENCH_OP_KL, [](auto& p) { p.index_scale = -1; }},
      // Chunks would be of few tokens.
      {MSABENCH_OP_KL, [](auto& p) { p = warm(m3(MSABENCH_OP_KL, 1 << 20)); }},
  };
  for (const auto& other : others) {
    msabench_problem p = m3(other.op, 8192);
    other.plant(p);
    EXPECT_TRUE(is_portable(p)) << &other - others;
  }
}

// Of a batch as a trainer has it; queries of the last one alone are 1 GiB.
TEST_F(cuda_sm90_training, keeps_what_fits_beside_a_batch) {
  constexpr std::uint64_t gibibyte = 1 << 30;
  for (const std::int64_t tokens : {4096, 16384, 65536}) {
    SCOPED_TRACE(tokens);
    EXPECT_LE(workspace_bytes(m3(MSABENCH_OP_ATTEND_BACKWARD, tokens)), 3 * gibibyte);
    EXPECT_LE(workspace_bytes(m3(MSABENCH_OP_DENSE_BACKWARD, tokens)), 3 * gibibyte);
    EXPECT_LE(workspace_bytes(m3(MSABENCH_OP_KL, tokens)), gibibyte);
    EXPECT_LE(workspace_bytes(warm(m3(MSABENCH_OP_KL, tokens))), gibibyte);
  }
}

}  // namespace

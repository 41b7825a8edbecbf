// SPDX-License-Identifier: Apache-2.0
// What plugin `cuda_sm90` says of itself, which needs no device.
#include <gtest/gtest.h>

#include <initializer_list>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "tests/kernels/plugin_session.h"

using namespace msabench::plugin_test;

namespace {

constexpr msabench_dtype bf16{4, 16, 1}, e4m3{10, 8, 1};
constexpr std::uint64_t mebibyte = 1 << 20;

msabench_problem m3(msabench_op op, std::int64_t tokens, std::int64_t context) {
  msabench_problem p = empty_problem(op);
  p.hq = 64;
  p.hkv = p.hi = 4;
  p.d = p.di = 128;
  p.q = p.kv = p.out = p.q_idx = p.k_idx = bf16;
  p.block = 128;
  p.topk = 16;
  p.local_blocks = 1;
  p.batch = 1;
  p.total_q = p.max_q_len = tokens;
  p.max_kv_len = p.total_kv = context;
  return p;
}

class cuda_sm90 : public testing::Test {
 protected:
  void SetUp() override {
    plugin_ = load_plugin(plugin_path("cuda_sm90"), 2, {2, 0});
    ASSERT_NE(plugin_, nullptr);
  }

  std::uint64_t workspace_bytes(const msabench_problem& p) {
    msabench_plan* plan = nullptr;
    EXPECT_EQ(plugin_->plan(&p, &plan), MSABENCH_OK) << plugin_->last_error();
    std::uint64_t bytes = 0;
    std::uint32_t alignment = 0;
    EXPECT_EQ(plugin_->workspace(plan, &bytes, &alignment), MSABENCH_OK);
    plugin_->destroy(plan);
    return bytes;
  }

  msabench_profile profile(const msabench_problem& p) {
    msabench_capability answer{};
    answer.struct_size = sizeof answer;
    EXPECT_EQ(plugin_->query(&p, &answer), MSABENCH_OK) << plugin_->last_error();
    return answer.profile;
  }

  msabench_numerics numerics(const msabench_problem& p) {
    msabench_capability answer{};
    answer.struct_size = sizeof answer;
    EXPECT_EQ(plugin_->query(&p, &answer), MSABENCH_OK) << plugin_->last_error();
    return answer.numerics;
  }

  const msabench_plugin* plugin_ = nullptr;
};

TEST_F(cuda_sm90, has_no_scores_of_a_long_prefill_in_memory) {
  for (const std::int64_t tokens : {17, 512, 2048, 8192, 1 << 20}) {
    SCOPED_TRACE(tokens);
    EXPECT_LE(workspace_bytes(m3(MSABENCH_OP_INDEX, tokens, 1 << 20)), 128 * mebibyte);
  }
  for (const std::int64_t tokens : {17, 512, 2048, 8192}) {
    SCOPED_TRACE(tokens);
    EXPECT_LE(workspace_bytes(m3(MSABENCH_OP_MSA, tokens, 1 << 20)), 256 * mebibyte);
  }
}

TEST_F(cuda_sm90, has_e4m3_in_the_index_branch) {
  msabench_problem p = m3(MSABENCH_OP_INDEX, 8192, 1 << 17);
  p.q_idx = p.k_idx = e4m3;
  p.idx_scale = 2;
  for (const std::int64_t tokens : {1, 8192}) {
    p.total_q = p.max_q_len = tokens;
    const bool is_decode = tokens == 1;
    p.op = MSABENCH_OP_INDEX;
    // A few rows are multiplied in fp16, which adds up in fp32; so would be a row of a long call if it were alone.
    EXPECT_EQ(numerics(p).score_acc.bits, is_decode ? 32 : 22);
    EXPECT_EQ(profile(p).batch_invariant, is_decode);
    // One accumulator is declared for both branches.
    p.op = MSABENCH_OP_MSA;
    EXPECT_EQ(numerics(p).score_acc.bits, is_decode ? 32 : 22);
    EXPECT_EQ(numerics(p).pv_acc.bits, 32);
    EXPECT_EQ(numerics(m3(MSABENCH_OP_MSA, tokens, 1 << 17)).score_acc.bits, 32);
  }
  p.op = MSABENCH_OP_INDEX;
  const auto refused = [&](const msabench_problem& asked) {
    msabench_capability answer{};
    answer.struct_size = sizeof answer;
    EXPECT_EQ(plugin_->query(&asked, &answer), MSABENCH_UNSUPPORTED);
    return std::string(plugin_->last_error());
  };
  for (const auto& plant : std::initializer_list<void (*)(msabench_problem&)>{
           [](msabench_problem& q) { q.op = MSABENCH_OP_SCORE; }, [](msabench_problem& q) { q.block = 64; },
           [](msabench_problem& q) { q.di = 120; }, [](msabench_problem& q) { q.topk = 18; }}) {
    msabench_problem other = p;
    plant(other);
    EXPECT_EQ(refused(other).rfind("q_idx {10,8,1}:", 0), 0u) << plugin_->last_error();
  }
}

// Refused before anything is enqueued, so that the tensors need not be where they say.
TEST_F(cuda_sm90, refuses_scores_of_e4m3_keys_when_msa_of_many_tokens_runs) {
  constexpr std::int64_t tokens = 17;
  msabench_problem p = m3(MSABENCH_OP_MSA, tokens, 128);
  p.q_idx = p.k_idx = e4m3;
  p.idx_scale = 1;
  arguments args;
  std::list<buffer> buffers;
  const auto add = [&](msabench_slot slot, msabench_dtype type, std::vector<std::int64_t> shape) {
    msabench_tensor tensor = buffers.emplace_back(type, std::move(shape)).tensor();
    tensor.device = {2, 0};
    args.put(slot, tensor);
  };
  for (const msabench_slot slot : {MSABENCH_Q, MSABENCH_OUT}) add(slot, bf16, {tokens, 64, 128});
  for (const msabench_slot slot : {MSABENCH_K, MSABENCH_V}) add(slot, bf16, {128, 4, 128});
  add(MSABENCH_Q_IDX, e4m3, {tokens, 4, 128});
  add(MSABENCH_K_IDX, e4m3, {128, 128});
  add(MSABENCH_Q_IDX_SCALE, fp32_type, {tokens, 4});
  add(MSABENCH_K_IDX_SCALE, fp32_type, {1});
  add(MSABENCH_SCORES, fp32_type, {4, tokens, 1});
  for (const msabench_slot slot : {MSABENCH_CU_SEQLENS_Q, MSABENCH_CU_SEQLENS_KV}) add(slot, int32_type, {2});
  add(MSABENCH_KV_LENS, int32_type, {1});
  session plan(plugin_, p);
  ASSERT_EQ(plan.status(), MSABENCH_OK) << plugin_->last_error();
  EXPECT_EQ(plan.run(args), MSABENCH_UNSUPPORTED);
  EXPECT_EQ(std::string(plugin_->last_error()).rfind("scores: ", 0), 0u) << plugin_->last_error();
}

TEST_F(cuda_sm90, promises_equal_bits_in_any_batch_only_where_one_kernel_scores) {
  for (const msabench_op op : {MSABENCH_OP_INDEX, MSABENCH_OP_MSA}) {
    SCOPED_TRACE(op);
    const msabench_problem prefill = m3(op, 8192, 1 << 17);
    EXPECT_EQ(profile(prefill).batch_invariant, 0);
    EXPECT_EQ(profile(prefill).repeatable, 1);
    EXPECT_EQ(profile(prefill).ties_low_id, 1);
    EXPECT_EQ(profile(prefill).graph_safe, 1);
    // Where attention has a kernel for rows alone, msa promises nothing.
    const int of_shape = op == MSABENCH_OP_INDEX;
    EXPECT_EQ(profile(m3(op, 1, 1 << 17)).batch_invariant, of_shape);
    msabench_problem portable = prefill;
    portable.block = 64;
    EXPECT_EQ(profile(portable).batch_invariant, 1);
    portable = prefill;
    portable.page_layout = 1;
    portable.page_size = 64;  // which attend takes
    portable.pool_pages = 1 << 11;
    EXPECT_EQ(profile(portable).batch_invariant, of_shape);
    portable = prefill;
    portable.topk = 18;
    EXPECT_EQ(profile(portable).batch_invariant, of_shape);
  }
  EXPECT_EQ(profile(m3(MSABENCH_OP_SCORE, 8192, 1 << 17)).batch_invariant, 1);
}

// A lane adds 32 keys of each of 64 tiles here; the portable kernel 16 of each of 128, and rescales twice as often.
TEST_F(cuda_sm90, declares_of_dense_what_the_kernel_does_that_takes_it) {
  const msabench_problem prefill = m3(MSABENCH_OP_DENSE, 8192, 8192);
  constexpr std::uint32_t own = 32 + 2 * 64 + 4, portable = 16 + 2 * 128 + 4;
  EXPECT_EQ(numerics(prefill).chain_row_sum, own);
  EXPECT_EQ(numerics(prefill).chain_out, 8192u);
  msabench_problem paged = prefill;
  paged.page_layout = 1;
  paged.page_size = 256;
  paged.pool_pages = 32;
  EXPECT_EQ(numerics(paged).chain_row_sum, own);
  paged.page_size = 64;
  paged.pool_pages = 128;
  EXPECT_EQ(numerics(paged).chain_row_sum, portable);
  EXPECT_EQ(profile(prefill).batch_invariant, 0);
}

TEST_F(cuda_sm90, attends_to_patches_with_the_kernel_of_dense) {
  msabench_problem p = empty_problem(MSABENCH_OP_VIT_ATTEND);
  p.hq = p.hkv = 16;
  p.d = 80;
  p.q = p.kv = p.out = bf16;
  p.batch = 16;
  p.max_q_len = p.max_kv_len = 4096;
  p.total_q = p.total_kv = 16 * 4096;
  EXPECT_EQ(numerics(p).chain_row_sum, 32u + 2 * 32 + 4);
  EXPECT_EQ(profile(p).batch_invariant, 1);
  EXPECT_EQ(workspace_bytes(p), 256u);  // the least there is: no partial results
}

}  // namespace

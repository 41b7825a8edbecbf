// SPDX-License-Identifier: Apache-2.0
// What the index branch of plugin `cuda` says of itself, which needs no device.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/kernels/cuda_session.h"

using namespace msabench::plugin_test;

namespace {

constexpr msabench_dtype bf16{4, 16, 1}, e4m3{10, 8, 1}, fp32{2, 32, 1};
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

class cuda_index : public cuda_plugin {};

struct fault {
  const char* text;
  std::function<void(msabench_problem&)> plant;
};

void expect_refused(const msabench_plugin* plugin, msabench_op op, const fault& planted) {
  SCOPED_TRACE(planted.text);
  msabench_problem p = m3(op, 1, 8192);
  planted.plant(p);
  msabench_capability answer{};
  answer.struct_size = sizeof answer;
  EXPECT_EQ(plugin->query(&p, &answer), MSABENCH_UNSUPPORTED);
  const std::string text = plugin->last_error();
  EXPECT_EQ(text.rfind(planted.text, 0), 0u) << text;
  EXPECT_NE(text.find(';'), std::string::npos) << text;
  msabench_plan* plan = nullptr;
  EXPECT_EQ(plugin->plan(&p, &plan), MSABENCH_UNSUPPORTED);
}

TEST_F(cuda_index, refuses_by_field_and_value) {
  const fault faults[] = {
      {"block 48:", [](auto& p) { p.block = 48; }},
      {"block 256:", [](auto& p) { p.block = 256; }},
      {"di 20:", [](auto& p) { p.di = 20; }},
      {"di 136:", [](auto& p) { p.di = 136; }},
      {"hi 65:", [](auto& p) { p.hq = p.hkv = p.hi = 65; }},
      {"q_idx {2,32,1}:", [](auto& p) { p.q_idx = p.k_idx = fp32; }},
      {"q_idx {10,8,1}:", [](auto& p) { p.q_idx = p.k_idx = e4m3; }},
  };
  for (const msabench_op op : {MSABENCH_OP_SCORE, MSABENCH_OP_INDEX, MSABENCH_OP_MSA})
    for (const fault& planted : faults) expect_refused(plugin_, op, planted);
  for (const msabench_op op : {MSABENCH_OP_SELECT, MSABENCH_OP_INDEX, MSABENCH_OP_MSA})
    expect_refused(plugin_, op, {"topk 33:", [](auto& p) { p.topk = 33; }});
}

TEST_F(cuda_index, takes_any_block_of_given_scores) {
  msabench_problem p = m3(MSABENCH_OP_SELECT, 3, 1 << 20);
  p.block = 4096;
  p.q_idx = p.k_idx = fp32;
  EXPECT_EQ(workspace_bytes(p), workspace_bytes(m3(MSABENCH_OP_SELECT, 3, 1 << 20)));
}

TEST_F(cuda_index, has_no_scores_of_a_long_prefill_in_memory) {
  for (const std::int64_t tokens : {1, 16, 17, 2048, 8192}) {
    SCOPED_TRACE(tokens);
    EXPECT_LE(workspace_bytes(m3(MSABENCH_OP_INDEX, tokens, 1 << 20)), 128 * mebibyte);
    EXPECT_LE(workspace_bytes(m3(MSABENCH_OP_MSA, tokens, 1 << 20)), 256 * mebibyte);
  }
  // A row in two parts at least has scores of 8192 blocks, or two lists of 15 blocks.
  EXPECT_GE(workspace_bytes(m3(MSABENCH_OP_INDEX, 1, 1 << 20)), 4u * 8192 * 4);
  EXPECT_GE(workspace_bytes(m3(MSABENCH_OP_INDEX, 2048, 1 << 20)), 2048u * 4 * 2 * 15 * 8);
}

TEST_F(cuda_index, sizes_memory_without_wrapping) {
  msabench_problem p = m3(MSABENCH_OP_INDEX, 1, 1 << 20);
  p.batch = p.total_q = 1 << 20;
  EXPECT_LE(workspace_bytes(p), 128 * mebibyte);
}

TEST_F(cuda_index, promises_the_same_bits_and_the_lower_id) {
  for (const msabench_op op : {MSABENCH_OP_SELECT, MSABENCH_OP_INDEX}) {
    msabench_problem p = m3(op, 8192, 1 << 20);
    msabench_capability answer{};
    answer.struct_size = sizeof answer;
    ASSERT_EQ(plugin_->query(&p, &answer), MSABENCH_OK) << plugin_->last_error();
    EXPECT_EQ(answer.profile.ties_low_id, 1);
    EXPECT_EQ(answer.profile.repeatable, 1);
    EXPECT_EQ(answer.profile.batch_invariant, 1);
    EXPECT_EQ(answer.profile.graph_safe, 1);
  }
}

}  // namespace

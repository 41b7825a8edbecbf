// SPDX-License-Identifier: Apache-2.0
// What plugin `cuda_sm90` says of decode, which needs no device.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "tests/kernels/cuda_session.h"

using namespace msabench::plugin_test;

namespace {

constexpr msabench_dtype bf16{4, 16, 1}, fp16{2, 16, 1};

msabench_problem m3(msabench_op op, std::int64_t batch, std::int64_t tokens, std::int64_t context) {
  msabench_problem p = empty_problem(op);
  p.hq = 64;
  p.hkv = p.hi = 4;
  p.d = p.di = 128;
  p.q = p.kv = p.out = p.q_idx = p.k_idx = bf16;
  p.block = 128;
  p.topk = 16;
  p.local_blocks = 1;
  p.page_layout = 1;
  p.page_size = 128;
  p.batch = batch;
  p.total_q = batch * tokens;
  p.max_q_len = tokens;
  p.max_kv_len = context;
  p.pool_pages = batch * context / 128;
  return p;
}

class cuda_sm90_decode : public cuda_plugin {
 protected:
  void SetUp() override {
    cuda_plugin::SetUp();
    portable_ = plugin_;
    plugin_ = load_plugin(plugin_path("cuda_sm90"), 2, {2, 0});
    ASSERT_NE(plugin_, nullptr);
  }

  static msabench_capability answer(const msabench_plugin* plugin, const msabench_problem& p) {
    msabench_capability answer{};
    answer.struct_size = sizeof answer;
    EXPECT_EQ(plugin->query(&p, &answer), MSABENCH_OK) << plugin->last_error();
    return answer;
  }

  /// Attention of few tokens has other chains than that of the portable kernels.
  bool declares_its_own(const msabench_problem& p) {
    const msabench_capability here = answer(plugin_, p), there = answer(portable_, p);
    return std::memcmp(&here.numerics, &there.numerics, sizeof here.numerics) != 0;
  }

  const msabench_plugin* portable_ = nullptr;
};

TEST_F(cuda_sm90_decode, is_for_few_tokens_of_m3_and_its_shards) {
  for (const msabench_op op : {MSABENCH_OP_ATTEND, MSABENCH_OP_MSA}) {
    for (const std::int64_t batch : {1, 16, 128}) EXPECT_TRUE(declares_its_own(m3(op, batch, 1, 1 << 17))) << batch;
    for (const std::int64_t tokens : {1, 2, 16}) EXPECT_TRUE(declares_its_own(m3(op, 1, tokens, 1 << 20))) << tokens;
    const std::function<void(msabench_problem&)> taken[] = {
        [](auto& p) { p.hq = 16, p.hkv = p.hi = 1; },
        [](auto& p) { p.q = p.kv = p.out = p.q_idx = p.k_idx = fp16; },
        [](auto& p) { p.page_size = 256; },
        [](auto& p) { p.page_layout = p.page_size = 0; },
        [](auto& p) { p.topk = 32, p.init_blocks = 3; },
    };
    const std::function<void(msabench_problem&)> left[] = {
        [](auto& p) { p.block = 64; },
        [](auto& p) { p.page_size = 64; },
        [](auto& p) { p.d = 64; },
    };
    for (const auto& change : taken) {
      msabench_problem p = m3(op, 1, 1, 1 << 20);
      change(p);
      EXPECT_TRUE(declares_its_own(p)) << &change - taken;
    }
    for (const auto& change : left) {
      msabench_problem p = m3(op, 1, 1, 1 << 20);
      change(p);
      EXPECT_FALSE(declares_its_own(p)) << &change - left;
      EXPECT_EQ(answer(plugin_, p).profile.batch_invariant, 1) << &change - left;
    }
  }
}

TEST_F(cuda_sm90_decode, promises_bits_of_scores_only) {
  EXPECT_EQ(answer(plugin_, m3(MSABENCH_OP_INDEX, 16, 1, 1 << 17)).profile.batch_invariant, 1);
  for (const msabench_op op : {MSABENCH_OP_ATTEND, MSABENCH_OP_MSA})
    // A row of a long call, alone, is one of few.
    for (const std::int64_t tokens : {1, 8192}) {
      const msabench_profile delivered = answer(plugin_, m3(op, 1, tokens, 1 << 17)).profile;
      EXPECT_EQ(delivered.batch_invariant, 0) << tokens;
      EXPECT_EQ(delivered.repeatable, 1) << tokens;
      EXPECT_EQ(delivered.graph_safe, 1) << tokens;
    }
}

TEST_F(cuda_sm90_decode, has_scores_in_memory_and_little_else) {
  for (const std::int64_t tokens : {1, 16})
    for (const std::int64_t batch : {1, 16}) {
      const std::uint64_t scores = static_cast<std::uint64_t>(batch * tokens) * 4 * 8192 * 4;
      const std::uint64_t got = workspace_bytes(m3(MSABENCH_OP_MSA, batch, tokens, 1 << 20));
      EXPECT_GE(got, scores);
      EXPECT_LE(got, scores + 4096);
    }
  EXPECT_LE(workspace_bytes(m3(MSABENCH_OP_ATTEND, 16, 1, 1 << 20)), 4096u);
  // Too many scores for that are not in memory at all.
  EXPECT_LE(workspace_bytes(m3(MSABENCH_OP_INDEX, 2048, 16, 1 << 20)), 256u << 20);
}

TEST_F(cuda_sm90_decode, divides_rows_among_thread_blocks_as_long_as_they_are_few) {
  // Of the longest chain of a denominator: five additions for each block of a thread block, five, and two for each of
  // the thread blocks.
  const auto chain = [](std::uint32_t blocks, std::uint32_t spans) {
    return 5 * ((blocks + spans - 1) / spans) + 5 + 2 * spans;
  };
  for (const std::int64_t batch : {1, 16, 64, 65, 66, 4096}) {
    const std::uint32_t spans = batch == 1 ? 16 : batch < 66 ? 2 : 1;
    msabench_problem p = m3(MSABENCH_OP_ATTEND, batch, 1, 1 << 13);
    EXPECT_EQ(answer(plugin_, p).numerics.chain_row_sum, chain(16, spans)) << batch;
    p.topk = 1;
    EXPECT_EQ(answer(plugin_, p).numerics.chain_row_sum, chain(1, spans == 16 ? 2 : spans)) << batch;
  }
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
// What `attend` of plugin `cuda_sm90` says of itself, which needs no device.
#include <gtest/gtest.h>

#include <string>

#include "tests/kernels/cuda_session.h"

using namespace msabench::plugin_test;

namespace {

constexpr msabench_dtype bf16{4, 16, 1}, fp16{2, 16, 1}, e4m3{10, 8, 1};

msabench_problem m3(std::int64_t tokens, std::int64_t context) {
  msabench_problem p = empty_problem(MSABENCH_OP_ATTEND);
  p.hq = 64;
  p.hkv = 4;
  p.d = 128;
  p.q = p.kv = p.out = bf16;
  p.batch = 1;
  p.total_q = p.max_q_len = tokens;
  p.max_kv_len = p.total_kv = context;
  p.block = 128;
  p.topk = 16;
  p.local_blocks = 1;
  return p;
}

class cuda_sm90_attend : public cuda_plugin {
 protected:
  void SetUp() override {
    plugin_ = load_plugin(plugin_path("cuda_sm90"), 2, {2, 0});
    ASSERT_NE(plugin_, nullptr);
  }
  msabench_capability ask(const msabench_problem& p) {
    msabench_capability answer{};
    answer.struct_size = sizeof answer;
    EXPECT_EQ(plugin_->query(&p, &answer), MSABENCH_OK) << plugin_->last_error();
    return answer;
  }
};

// Results of blocks are stored in 16 bits where tokens are many, and rows have other bits beside others.
TEST_F(cuda_sm90_attend, declares_rounded_partial_results_of_many_tokens) {
  const msabench_capability answer = ask(m3(8192, 1 << 20));
  EXPECT_EQ(answer.numerics.partial_store.bits, 16);
  EXPECT_EQ(answer.numerics.p_operand.bits, 16);
  EXPECT_EQ(answer.numerics.pv_acc.bits, 32);
  EXPECT_EQ(answer.numerics.lse_from_rounded_p, 0);
  EXPECT_EQ(answer.profile.batch_invariant, 0);
  EXPECT_EQ(answer.profile.repeatable, 1);
  EXPECT_EQ(answer.profile.graph_safe, 1);
}

// bf16 holds every value of e4m3; weights are rounded once they have been multiplied by the scales of values.
TEST_F(cuda_sm90_attend, rounds_no_scaled_values) {
  for (const std::int32_t scale : {0, 1, 2}) {
    msabench_problem p = m3(8192, 1 << 20);
    p.kv = e4m3;
    p.kv_scale = scale;
    const msabench_capability answer = ask(p);
    EXPECT_EQ(answer.numerics.operand.bits, 16);
    EXPECT_EQ(answer.numerics.v_operand.bits, 8);
    EXPECT_EQ(answer.numerics.p_operand.bits, 16);
  }
}

TEST_F(cuda_sm90_attend, refuses_e4m3_by_field_and_value) {
  const struct {
    const char* text;
    void (*plant)(msabench_problem&);
  } faults[] = {
      {"d 64:", [](msabench_problem& p) { p.d = 64; }},
      {"block 64:", [](msabench_problem& p) { p.block = 64; }},
      {"topk 33:", [](msabench_problem& p) { p.topk = 33; }},
      {"hq 68:", [](msabench_problem& p) { p.hq = 68; }},
      {"page_size 132:", [](msabench_problem& p) { p.page_layout = 1, p.page_size = 132, p.pool_pages = 8; }},
      {"batch 16:", [](msabench_problem& p) { p.batch = 16; }},
      {"softmax_scale -0.5:", [](msabench_problem& p) { p.softmax_scale = -0.5; }},
      {"kv {10,8,1}:", [](msabench_problem& p) { p.q = p.out = fp16; }},
      {"kv {10,8,1}:", [](msabench_problem& p) { p.op = MSABENCH_OP_DENSE; }},
  };
  for (const auto& fault : faults) {
    msabench_problem p = m3(8192, 1 << 20);
    p.kv = e4m3;
    p.kv_scale = 2;
    fault.plant(p);
    msabench_capability answer{};
    answer.struct_size = sizeof answer;
    EXPECT_EQ(plugin_->query(&p, &answer), MSABENCH_UNSUPPORTED) << fault.text;
    EXPECT_EQ(std::string(plugin_->last_error()).rfind(fault.text, 0), 0u) << plugin_->last_error();
  }
}

TEST_F(cuda_sm90_attend, takes_e4m3_of_nothing) {
  for (const auto plant : {+[](msabench_problem& p) { p.batch = p.total_q = p.max_q_len = 0; },
                           +[](msabench_problem& p) { p.max_kv_len = p.total_kv = 0; }}) {
    msabench_problem p = m3(2, 1 << 20);
    p.kv = e4m3;
    p.kv_scale = 2;
    plant(p);
    ask(p);
    EXPECT_LE(workspace_bytes(p), 16u << 20);
  }
}

// With so many heads a row that is alone fills a device, and has its kernel here; the call is too large for that.
TEST_F(cuda_sm90_attend, promises_no_bits_where_a_row_alone_takes_another_kernel) {
  msabench_problem p = m3(512, 1024);
  p.hq = p.hkv = 96;
  p.batch = 512;
  EXPECT_EQ(ask(p).numerics.partial_store.bits, 32);
  EXPECT_EQ(ask(p).profile.batch_invariant, 0);
}

TEST_F(cuda_sm90_attend, leaves_to_the_portable_kernels_what_it_does_not_take) {
  msabench_problem few = m3(1, 1 << 20), narrow = m3(8192, 1 << 20), small_blocks = narrow, negative = narrow;
  msabench_problem ragged_pages = narrow, many_blocks = narrow;
  narrow.d = 64;
  small_blocks.block = 64;
  negative.softmax_scale = -1;
  ragged_pages.page_layout = 1;
  ragged_pages.page_size = 132;
  many_blocks.topk = 33;
  for (const msabench_problem& p : {few, narrow, small_blocks, negative, ragged_pages, many_blocks}) {
    const msabench_capability answer = ask(p);
    EXPECT_EQ(answer.numerics.partial_store.bits, 32);
    // Rows alone would have a kernel of their own.
    const bool decodes = p.d == 128 && p.block == 128 && p.topk <= 32 && p.page_size % 128 == 0;
    EXPECT_EQ(answer.profile.batch_invariant, !decodes);
  }
}

TEST_F(cuda_sm90_attend, takes_pages_that_hold_whole_rows_of_boxes) {
  for (const std::int32_t page_size : {8, 64, 128, 192, 256}) {
    msabench_problem p = m3(8192, 1 << 20);
    p.page_layout = 1;
    p.page_size = page_size;
    p.pool_pages = (1 << 20) / page_size + 1;
    EXPECT_EQ(ask(p).numerics.partial_store.bits, 16) << page_size;
  }
}

// The project promises 256 MB at a context of a million tokens.
TEST_F(cuda_sm90_attend, takes_little_scratch) {
  for (const std::int64_t tokens : {64, 128, 2048, 8192, 8193, 1 << 20}) {
    EXPECT_LE(workspace_bytes(m3(tokens, 1 << 20)), 256u << 20) << tokens;
    msabench_problem ragged = m3(tokens, 1 << 17);
    ragged.batch = 8;
    EXPECT_LE(workspace_bytes(ragged), 256u << 20) << tokens << " of 8 sequences";
    msabench_problem wide = m3(tokens, 1 << 17);
    wide.q = wide.kv = wide.out = fp16;
    wide.hkv = 8;
    EXPECT_LE(workspace_bytes(wide), 256u << 20) << tokens << " of 8 heads";
  }
}

}  // namespace

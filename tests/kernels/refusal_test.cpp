// SPDX-License-Identifier: Apache-2.0
// Rule R9: what is refused, by which status, and that the text names the field.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "tests/kernels/each_plugin.h"
#include "tests/kernels/small_attend.h"
#include "tests/kernels/small_index.h"
#include "tests/kernels/small_select.h"

using namespace msabench::plugin_test;

namespace {

struct problem_fault {
  const char* field;
  msabench_status status;
  std::function<void(msabench_problem&)> plant;
};

struct tensor_fault {
  const char* field;
  msabench_status status;
  std::function<void(arguments&)> plant;
};

class refusal : public each_plugin {
 protected:
  void expect_refused(const msabench_problem& sound, const problem_fault& fault) {
    SCOPED_TRACE(fault.field);
    msabench_problem problem = sound;
    fault.plant(problem);
    msabench_capability capability{};
    capability.struct_size = sizeof capability;
    EXPECT_EQ(plugin()->query(&problem, &capability), fault.status);
    const std::string text = plugin()->last_error();
    EXPECT_EQ(text.rfind(fault.field, 0), 0u) << text;
    EXPECT_NE(text.find(':'), std::string::npos) << text;
    EXPECT_NE(text.find(';'), std::string::npos) << text;
    msabench_plan* plan = nullptr;
    EXPECT_EQ(plugin()->plan(&problem, &plan), fault.status) << "query and plan disagree";
    EXPECT_EQ(text, plugin()->last_error());
    EXPECT_EQ(plan, nullptr);
  }

  template <class Test>
  void expect_refused_at_run(Test& test, const tensor_fault& fault) {
    SCOPED_TRACE(fault.field);
    session plan(plugin(), test.problem);
    ASSERT_EQ(plan.status(), MSABENCH_OK) << plugin()->last_error();
    arguments args = test.args();
    fault.plant(args);
    EXPECT_EQ(plan.run(args), fault.status);
    const std::string text = plugin()->last_error();
    EXPECT_EQ(text.rfind(fault.field, 0), 0u) << text;
  }
};

MSABENCH_FOR_EACH_PLUGIN(refusal);

}  // namespace

TEST_P(refusal, problems_of_both_operators) {
  const small_attend attend({});
  const small_select select({});
  const auto largest = std::numeric_limits<std::int32_t>::max();
  const problem_fault faults[] = {
      {"op 0", MSABENCH_UNSUPPORTED, [](auto& p) { p.op = 0; }},
      {"op 99", MSABENCH_UNSUPPORTED, [](auto& p) { p.op = 99; }},
      {"op 99", MSABENCH_UNSUPPORTED, [](auto& p) { p.op = 99; }},
      {"reserved 7", MSABENCH_UNSUPPORTED, [](auto& p) { p.reserved = 7; }},
      {"topk 0", MSABENCH_INVALID_PROBLEM, [](auto& p) { p.topk = 0; }},
      {"topk 1", MSABENCH_INVALID_PROBLEM, [](auto& p) { p.topk = 1, p.local_blocks = 1, p.init_blocks = 1; }},
      {"topk 4", MSABENCH_INVALID_PROBLEM, [=](auto& p) { p.topk = 4, p.local_blocks = p.init_blocks = largest; }},
      {"block 0", MSABENCH_INVALID_PROBLEM, [](auto& p) { p.block = 0; }},
      {"hkv 0", MSABENCH_INVALID_PROBLEM, [](auto& p) { p.hkv = 0; }},
      {"local_blocks -1", MSABENCH_INVALID_PROBLEM, [](auto& p) { p.local_blocks = -1; }},
      {"init_blocks -1", MSABENCH_INVALID_PROBLEM, [](auto& p) { p.init_blocks = -1; }},
      {"batch -1", MSABENCH_INVALID_PROBLEM, [](auto& p) { p.batch = -1; }},
      {"max_kv_len -1", MSABENCH_INVALID_PROBLEM, [](auto& p) { p.max_kv_len = -1; }},
      {"max_kv_len", MSABENCH_UNSUPPORTED, [](auto& p) { p.max_kv_len = std::numeric_limits<std::int64_t>::max(); }},
      {"profile.lse 1", MSABENCH_UNSUPPORTED, [](auto& p) { p.profile.lse = MSABENCH_LSE_BASE2; }},
      {"profile.in_id_form 3", MSABENCH_UNSUPPORTED, [](auto& p) { p.profile.in_id_form = 3; }},
      {"profile.out_id_order 2", MSABENCH_UNSUPPORTED, [](auto& p) { p.profile.out_id_order = 2; }},
      {"profile.hardened 1", MSABENCH_UNSUPPORTED, [](auto& p) { p.profile.hardened = 1; }},
      {"profile.rank_step", MSABENCH_UNSUPPORTED, [](auto& p) { p.profile.rank_step = 1e-3f; }},
  };
  for (const auto& fault : faults) {
    expect_refused(attend.problem, fault);
    expect_refused(select.problem, fault);
  }
}

TEST_P(refusal, problems_of_attend) {
  const small_attend attend({});
  const problem_fault faults[] = {
      {"hq 0", MSABENCH_INVALID_PROBLEM, [](auto& p) { p.hq = 0; }},
      {"hq 5", MSABENCH_INVALID_PROBLEM, [](auto& p) { p.hq = 5; }},
      {"d 0", MSABENCH_INVALID_PROBLEM, [](auto& p) { p.d = 0; }},
      {"page_layout 3", MSABENCH_UNSUPPORTED, [](auto& p) { p.page_layout = 3; }},
      {"page_size 8", MSABENCH_INVALID_PROBLEM, [](auto& p) { p.page_size = 8; }},
      {"page_size 0", MSABENCH_INVALID_PROBLEM, [](auto& p) { p.page_layout = 1; }},
      {"q {2,64,1}", MSABENCH_UNSUPPORTED, [](auto& p) { p.q = {2, 64, 1}; }},
      {"kv {10,8,0}", MSABENCH_UNSUPPORTED, [](auto& p) { p.kv = {10, 8, 0}; }},
      {"kv {4,16,1}", MSABENCH_UNSUPPORTED, [](auto& p) { p.kv = bf16_type; }},
      {"out {0,0,0}", MSABENCH_UNSUPPORTED, [](auto& p) { p.out = {}; }},
      {"kv_scale 1", MSABENCH_UNSUPPORTED, [](auto& p) { p.kv_scale = 1; }},
      {"splits 8", MSABENCH_UNSUPPORTED, [](auto& p) { p.splits = 8; }},
      {"softmax_scale", MSABENCH_INVALID_PROBLEM, [](auto& p) { p.softmax_scale = std::nan(""); }},
  };
  for (const auto& fault : faults) expect_refused(attend.problem, fault);
  // The others need no memory that grows with the keys of a row.
  if (GetParam().file != std::string("naive")) return;
  expect_refused(attend.problem, {"max_kv_len", MSABENCH_NO_RESOURCES, [](auto& p) {
                                    p.topk = 2000000000, p.d = p.block = 1 << 20, p.max_kv_len = std::int64_t{1} << 50;
                                  }});
}

TEST_P(refusal, problems_of_the_index_branch) {
  const problem_fault faults[] = {
      {"hi 0", MSABENCH_INVALID_PROBLEM, [](auto& p) { p.hi = 0; }},
      {"hi 3", MSABENCH_INVALID_PROBLEM, [](auto& p) { p.hi = 3; }},
      {"di 0", MSABENCH_INVALID_PROBLEM, [](auto& p) { p.di = 0; }},
      {"page_layout 3", MSABENCH_UNSUPPORTED, [](auto& p) { p.page_layout = 3; }},
      {"page_size 0", MSABENCH_INVALID_PROBLEM, [](auto& p) { p.page_layout = 1; }},
      {"q_idx {10,8,0}", MSABENCH_UNSUPPORTED, [](auto& p) { p.q_idx = {10, 8, 0}; }},
      {"k_idx {4,16,1}", MSABENCH_UNSUPPORTED, [](auto& p) { p.k_idx = bf16_type; }},
      {"idx_scale 1", MSABENCH_UNSUPPORTED, [](auto& p) { p.idx_scale = 1; }},
      {"index_scale", MSABENCH_INVALID_PROBLEM, [](auto& p) { p.index_scale = std::nan(""); }},
      {"topk 0", MSABENCH_INVALID_PROBLEM, [](auto& p) { p.topk = 0; }},
  };
  for (const auto& fault : faults) {
    for (const msabench_op op : {MSABENCH_OP_SCORE, MSABENCH_OP_INDEX})
      expect_refused(small_index(op, {}).problem, fault);
  }
}

TEST_P(refusal, tensors_of_the_index_branch) {
  small_index scores(MSABENCH_OP_SCORE, {}), ids(MSABENCH_OP_INDEX, {}), paged(MSABENCH_OP_INDEX, {.page_size = 8});
  static const std::int64_t few[] = {2, 12, 15};
  const tensor_fault faults[] = {
      {"q_idx absent", MSABENCH_INVALID_PROBLEM, [](auto& a) { a.remove(MSABENCH_Q_IDX); }},
      {"k_idx absent", MSABENCH_INVALID_PROBLEM, [](auto& a) { a.remove(MSABENCH_K_IDX); }},
      {"k_idx.dtype", MSABENCH_INVALID_PROBLEM, [](auto& a) { a.at(MSABENCH_K_IDX).dtype = bf16_type; }},
  };
  for (const auto& fault : faults) {
    expect_refused_at_run(scores, fault);
    expect_refused_at_run(ids, fault);
  }
  expect_refused_at_run(
      scores, {"scores.shape[2] 15", MSABENCH_INVALID_PROBLEM, [](auto& a) { a.at(MSABENCH_SCORES).shape = few; }});
  expect_refused_at_run(scores,
                        {"scores absent", MSABENCH_INVALID_PROBLEM, [](auto& a) { a.remove(MSABENCH_SCORES); }});
  expect_refused_at_run(ids, {"ids absent", MSABENCH_INVALID_PROBLEM, [](auto& a) { a.remove(MSABENCH_IDS); }});
  expect_refused_at_run(
      ids, {"lse_idx.data null", MSABENCH_INVALID_PROBLEM, [](auto& a) { a.at(MSABENCH_LSE_IDX).data = nullptr; }});
  expect_refused_at_run(
      ids, {"cu_seqlens_kv absent", MSABENCH_INVALID_PROBLEM, [](auto& a) { a.remove(MSABENCH_CU_SEQLENS_KV); }});
  expect_refused_at_run(
      paged, {"block_table_idx absent", MSABENCH_INVALID_PROBLEM, [](auto& a) { a.remove(MSABENCH_BLOCK_TABLE_IDX); }});
  EXPECT_TRUE(scores.scores.untouched({0, 0, 0}));
  EXPECT_TRUE(ids.ids.untouched({0, 0, 0}));
}

TEST_P(refusal, tensors_of_attend) {
  small_attend test({});
  small_attend paged({.page_layout = 1, .page_size = 8});
  static const std::int64_t wrong_shape[] = {13, 4, 15}, long_batch[] = {9}, row_strides[] = {64, 16, 2},
                            negative[] = {-64, 16, 1};
  const tensor_fault faults[] = {
      {"q absent", MSABENCH_INVALID_PROBLEM, [](auto& a) { a.remove(MSABENCH_Q); }},
      {"ids absent", MSABENCH_INVALID_PROBLEM, [](auto& a) { a.remove(MSABENCH_IDS); }},
      {"out absent", MSABENCH_INVALID_PROBLEM, [](auto& a) { a.remove(MSABENCH_OUT); }},
      {"k absent", MSABENCH_INVALID_PROBLEM, [](auto& a) { a.remove(MSABENCH_K); }},
      {"v absent", MSABENCH_INVALID_PROBLEM, [](auto& a) { a.remove(MSABENCH_V); }},
      {"cu_seqlens_q absent", MSABENCH_INVALID_PROBLEM, [](auto& a) { a.remove(MSABENCH_CU_SEQLENS_Q); }},
      {"kv_lens absent", MSABENCH_INVALID_PROBLEM, [](auto& a) { a.remove(MSABENCH_KV_LENS); }},
      {"cu_seqlens_kv absent", MSABENCH_INVALID_PROBLEM, [](auto& a) { a.remove(MSABENCH_CU_SEQLENS_KV); }},
      {"q.data null", MSABENCH_INVALID_PROBLEM, [](auto& a) { a.at(MSABENCH_Q).data = nullptr; }},
      {"out.data null", MSABENCH_INVALID_PROBLEM, [](auto& a) { a.at(MSABENCH_OUT).data = nullptr; }},
      {"lse.data null", MSABENCH_INVALID_PROBLEM, [](auto& a) { a.at(MSABENCH_LSE).data = nullptr; }},
      {"k.strides null", MSABENCH_INVALID_PROBLEM, [](auto& a) { a.at(MSABENCH_K).strides = nullptr; }},
      {"q.rank 2", MSABENCH_INVALID_PROBLEM, [](auto& a) { a.at(MSABENCH_Q).rank = 2; }},
      {"q.shape[2] 15", MSABENCH_INVALID_PROBLEM, [](auto& a) { a.at(MSABENCH_Q).shape = wrong_shape; }},
      {"out.shape[0] 13", MSABENCH_INVALID_PROBLEM, [](auto& a) { a.at(MSABENCH_OUT).shape = wrong_shape; }},
      {"kv_lens.shape[0] 9", MSABENCH_INVALID_PROBLEM, [](auto& a) { a.at(MSABENCH_KV_LENS).shape = long_batch; }},
      {"cu_seqlens_q.shape[0] 9", MSABENCH_INVALID_PROBLEM,
       [](auto& a) { a.at(MSABENCH_CU_SEQLENS_Q).shape = long_batch; }},
      {"q.dtype", MSABENCH_INVALID_PROBLEM, [](auto& a) { a.at(MSABENCH_Q).dtype = bf16_type; }},
      {"ids.dtype", MSABENCH_INVALID_PROBLEM, [](auto& a) { a.at(MSABENCH_IDS).dtype = fp32_type; }},
      {"q.device 2", MSABENCH_INVALID_PROBLEM, [](auto& a) { a.at(MSABENCH_Q).device.type = 2; }},
      {"q.strides[2] 2", MSABENCH_UNSUPPORTED, [](auto& a) { a.at(MSABENCH_Q).strides = row_strides; }},
      {"out.strides[0] -64", MSABENCH_UNSUPPORTED, [](auto& a) { a.at(MSABENCH_OUT).strides = negative; }},
  };
  for (const auto& fault : faults) expect_refused_at_run(test, fault);
  expect_refused_at_run(
      paged, {"block_table absent", MSABENCH_INVALID_PROBLEM, [](auto& a) { a.remove(MSABENCH_BLOCK_TABLE); }});
  EXPECT_TRUE(test.out.untouched({0, 0, 0})) << "an output was written before a refusal";
  EXPECT_TRUE(test.lse.untouched({0, 0}));
}

TEST_P(refusal, tensors_of_select) {
  small_select test({});
  static const std::int64_t few_blocks[] = {2, 12, 15};
  const tensor_fault faults[] = {
      {"scores absent", MSABENCH_INVALID_PROBLEM, [](auto& a) { a.remove(MSABENCH_SCORES); }},
      {"ids absent", MSABENCH_INVALID_PROBLEM, [](auto& a) { a.remove(MSABENCH_IDS); }},
      {"scores.shape[2] 15", MSABENCH_INVALID_PROBLEM, [](auto& a) { a.at(MSABENCH_SCORES).shape = few_blocks; }},
      {"scores.dtype", MSABENCH_INVALID_PROBLEM, [](auto& a) { a.at(MSABENCH_SCORES).dtype = bf16_type; }},
  };
  for (const auto& fault : faults) expect_refused_at_run(test, fault);
  EXPECT_TRUE(test.ids.untouched({0, 0, 0}));
}

TEST_P(refusal, more_tokens_than_rows) {
  small_attend test({});
  test.cu_seqlens_q.set({4}, 100);
  expect_refused_at_run(test, {"q.shape[0]", MSABENCH_INVALID_PROBLEM, [](auto&) {}});
}

TEST_P(refusal, null_pointers) {
  small_attend test({});
  msabench_capability capability{};
  msabench_plan* plan = nullptr;
  EXPECT_EQ(plugin()->query(nullptr, &capability), MSABENCH_INVALID_PROBLEM);
  EXPECT_EQ(plugin()->query(&test.problem, nullptr), MSABENCH_INVALID_PROBLEM);
  EXPECT_EQ(plugin()->plan(nullptr, &plan), MSABENCH_INVALID_PROBLEM);
  EXPECT_EQ(plugin()->plan(&test.problem, nullptr), MSABENCH_INVALID_PROBLEM);
  EXPECT_EQ(plugin()->run(nullptr, nullptr, nullptr, nullptr), MSABENCH_INVALID_PROBLEM);
  session made(plugin(), test.problem);
  arguments args = test.args();
  EXPECT_EQ(plugin()->run(made.plan(), nullptr, made.workspace(), nullptr), MSABENCH_INVALID_PROBLEM);
  EXPECT_EQ(plugin()->run(made.plan(), args.get(), nullptr, nullptr), MSABENCH_INVALID_PROBLEM);
  plugin()->destroy(nullptr);
  EXPECT_STREQ(plugin()->last_error(), "");
}

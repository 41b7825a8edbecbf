// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/kernels/central_difference.h"
#include "tests/kernels/each_plugin.h"
#include "tests/kernels/small_kl.h"

using namespace msabench::plugin_test;

namespace {

class kl : public each_plugin {};

MSABENCH_FOR_EACH_PLUGIN(kl);

}  // namespace

TEST_P(kl, every_type_stage_and_stride) {
  for (const bool warm_up : {false, true})
    for (const auto type : {fp32_type, bf16_type, fp16_type})
      for (const bool padded : {false, true}) {
        SCOPED_TRACE(std::to_string(warm_up) + " " + std::to_string(type.code) + "," + std::to_string(type.bits));
        expect_right(small_kl({.type = type, .padded_strides = padded}, {.warm_up = warm_up}));
      }
}

TEST_P(kl, heads_dimensions_and_blocks) {
  const std::pair<attend_shape, std::int32_t> shapes[] = {{{.hq = 1, .hkv = 1, .d = 1, .block = 1, .topk = 1}, 1},
                                                          {{.hq = 6, .hkv = 3, .d = 7, .block = 5, .topk = 2}, 9},
                                                          {{.hq = 16, .hkv = 1, .d = 80, .block = 16, .topk = 4}, 8},
                                                          {{.hq = 3, .hkv = 3, .d = 8, .block = 128, .topk = 1}, 64},
                                                          {{.hq = 8, .hkv = 4, .d = 24, .block = 3, .topk = 100}, 24},
                                                          {{.hq = 8, .hkv = 2, .softmax_scale = 0.7}, 16}};
  for (const auto& [shape, di] : shapes)
    for (const bool warm_up : {false, true}) {
      SCOPED_TRACE("d " + std::to_string(shape.d) + (warm_up ? " warm-up" : ""));
      expect_right(small_kl(shape, {.di = di, .warm_up = warm_up}));
    }
}

TEST_P(kl, warm_up_needs_no_block) {
  small_kl test({.sequences = {{3, 200}, {2, 40}}}, {.warm_up = true});
  test.problem.block = test.problem.topk = test.problem.local_blocks = 0;
  session plan(plugin(), test.problem);
  ASSERT_EQ(plan.status(), MSABENCH_OK) << plugin()->last_error();
  arguments args = test.args();
  ASSERT_EQ(plan.run(args), MSABENCH_OK);
  EXPECT_EQ(test.fault().value_or("none"), "none");
}

TEST_P(kl, ids_may_be_short_and_lenient) {
  for (const auto form : {MSABENCH_FORM_SHORT, MSABENCH_FORM_LENIENT})
    for (unsigned seed = 0; seed < 4; ++seed)
      expect_right(small_kl({.topk = 6, .sequences = {{9, 80}, {4, 4}, {1, 33}}, .form = form}, {}, seed));
}

TEST_P(kl, gradients_are_differences_of_the_loss) {
  for (const bool warm_up : {false, true}) {
    small_kl test({.hq = 6, .hkv = 2, .d = 5, .sequences = {{5, 30}, {0, 4}, {3, 3}, {1, 0}}},
                  {.di = 4, .warm_up = warm_up, .coeff = 3});
    session plan(plugin(), test.problem);
    arguments args = test.args();
    ASSERT_EQ(plan.run(args), MSABENCH_OK);
    const auto loss = [&] { return test.expected_loss(); };
    for (std::int64_t row = 0; row < test.main.tokens(); ++row)
      for (std::int64_t head = 0; head < 2; ++head)
        for (std::int64_t c = 0; c < 4; ++c)
          EXPECT_NEAR(test.dq_idx.get({row, head, c}), central_difference(test.q_idx, {row, head, c}, loss), 2e-6)
              << row;
    for (std::int64_t key = 0; key < test.k_idx.shape()[0]; ++key)
      for (std::int64_t c = 0; c < 4; ++c)
        EXPECT_NEAR(test.dk_idx.get({key, c}), central_difference(test.k_idx, {key, c}, loss), 2e-6) << key;
  }
}

TEST_P(kl, what_nothing_adds_to_is_zero) {
  small_kl test({.topk = 1, .sequences = {{1, 0}, {0, 20}, {2, 40}}});
  session plan(plugin(), test.problem);
  arguments args = test.args();
  ASSERT_EQ(plan.run(args), MSABENCH_OK);
  EXPECT_EQ(test.fault().value_or("none"), "none");
  for (std::int64_t c = 0; c < 12; ++c) {
    EXPECT_EQ(test.dq_idx.get({0, 1, c}), 0);  // a padding row
    EXPECT_EQ(test.dk_idx.get({7, c}), 0);     // of a sequence without query tokens
  }
}

TEST_P(kl, no_coefficient_gives_zeros) {
  small_kl test({}, {.coeff = 0});
  session plan(plugin(), test.problem);
  arguments args = test.args();
  ASSERT_EQ(plan.run(args), MSABENCH_OK);
  EXPECT_EQ(test.loss.get({0}), 0);
  EXPECT_EQ(test.fault().value_or("none"), "none");
}

TEST_P(kl, the_loss_is_finite_where_the_student_underflows) {
  small_kl test({.sequences = {{4, 60}}}, {.warm_up = true, .index_size = 500});
  session plan(plugin(), test.problem);
  arguments args = test.args();
  ASSERT_EQ(plan.run(args), MSABENCH_OK);
  EXPECT_GT(test.loss.get({0}), 100);
  EXPECT_NEAR(test.loss.get({0}), test.expected_loss(), 1e-4 * test.expected_loss());
}

TEST_P(kl, detached_gradients_may_be_absent) {
  small_kl test({});
  session plan(plugin(), test.problem);
  arguments args = test.args();
  args.remove(MSABENCH_DQ);
  args.remove(MSABENCH_DK);
  ASSERT_EQ(plan.run(args), MSABENCH_OK) << plugin()->last_error();
  EXPECT_TRUE(test.dq.untouched({0, 0, 0}));
  EXPECT_FALSE(test.dq_idx.untouched({0, 0, 0}));
}

TEST_P(kl, results_are_overwritten) {
  small_kl test({});
  session plan(plugin(), test.problem);
  arguments args = test.args();
  ASSERT_EQ(plan.run(args), MSABENCH_OK);
  const auto once = test.dk_idx.bytes();
  const double loss = test.loss.get({0});
  ASSERT_EQ(plan.run(args), MSABENCH_OK);
  EXPECT_EQ(test.dk_idx.bytes(), once);
  EXPECT_EQ(test.loss.get({0}), loss);
}

TEST_P(kl, threads_change_no_bit) {
  small_kl test({.sequences = {{20, 100}, {3, 60}}});
  std::vector<std::vector<std::byte>> bits;
  for (const int threads : {1, 2, 5}) {
    session plan(with_threads(threads), test.problem);
    arguments args = test.args();
    ASSERT_EQ(plan.run(args), MSABENCH_OK);
    for (const buffer* b : {&test.loss, &test.dq_idx, &test.dk_idx}) bits.push_back(b->bytes());
  }
  for (std::size_t i = 3; i < bits.size(); ++i) EXPECT_EQ(bits[i], bits[i % 3]);
}

TEST_P(kl, gradients_may_be_short) {
  small_kl test({.type = bf16_type});
  test.problem.grad = bf16_type;
  for (buffer* b : {&test.dq_idx, &test.dk_idx, &test.dq, &test.dk}) *b = buffer(bf16_type, b->shape());
  expect_right(std::move(test));
}

TEST_P(kl, empty_batches_have_no_loss) {
  for (attend_shape shape :
       {attend_shape{.sequences = {}}, attend_shape{.sequences = {{0, 0}, {0, 9}}, .spare_rows = 0}}) {
    small_kl test(shape);
    session plan(plugin(), test.problem);
    arguments args = test.args();
    ASSERT_EQ(plan.run(args), MSABENCH_OK) << plugin()->last_error();
    EXPECT_EQ(test.loss.get({0}), 0);
    EXPECT_EQ(test.fault().value_or("none"), "none");
  }
}

TEST_P(kl, problems_and_tensors_are_checked) {
  small_kl test({});
  const auto refused = [&](auto change, const char* field) {
    msabench_problem problem = test.problem;
    change(problem);
    msabench_plan* plan = nullptr;
    EXPECT_NE(plugin()->plan(&problem, &plan), MSABENCH_OK) << field;
    EXPECT_EQ(std::string(plugin()->last_error()).rfind(field, 0), 0u) << plugin()->last_error();
  };
  refused([](auto& p) { p.page_layout = 1, p.page_size = 8; }, "page_layout 1");
  refused([](auto& p) { p.kv = {10, 8, 1}; }, "kv {10,8,1}");
  refused([](auto& p) { p.q_idx = p.k_idx = {10, 8, 1}; }, "k_idx {10,8,1}");
  refused([](auto& p) { p.grad = {2, 64, 1}; }, "grad {2,64,1}");
  refused([](auto& p) { p.hi = 1; }, "hi 1");
  refused([](auto& p) { p.kl_warm_up = 2; }, "kl_warm_up 2");
  refused([](auto& p) { p.kl_coeff = std::nan(""); }, "kl_coeff");
  refused([](auto& p) { p.block = 0; }, "block 0");
  refused([](auto& p) { p.profile.batch_invariant = 1; }, "profile.batch_invariant 1");
  session made(plugin(), test.problem);
  for (const auto& [slot, text] :
       {std::pair{MSABENCH_LOSS, "loss absent"}, std::pair{MSABENCH_IDS, "ids absent"},
        std::pair{MSABENCH_K_IDX, "k_idx absent"}, std::pair{MSABENCH_DK_IDX, "dk_idx absent"}}) {
    arguments args = test.args();
    args.remove(slot);
    EXPECT_EQ(made.run(args), MSABENCH_INVALID_PROBLEM);
    EXPECT_EQ(std::string(plugin()->last_error()).rfind(text, 0), 0u) << plugin()->last_error();
  }
  msabench_problem few = test.problem;
  few.total_q = 3;
  session for_few(plugin(), few);
  arguments args = test.args();
  EXPECT_EQ(for_few.run(args), MSABENCH_INVALID_PROBLEM);
  EXPECT_EQ(std::string(plugin()->last_error()).rfind("cu_seqlens_q: ends at 9", 0), 0u) << plugin()->last_error();
  few.total_q = test.problem.total_q;
  few.total_kv = 3;
  session for_few_keys(plugin(), few);
  EXPECT_EQ(for_few_keys.run(args), MSABENCH_INVALID_PROBLEM);
  EXPECT_EQ(std::string(plugin()->last_error()).rfind("cu_seqlens_kv: ends at", 0), 0u) << plugin()->last_error();
  EXPECT_TRUE(test.dk_idx.untouched({0, 0}));
}

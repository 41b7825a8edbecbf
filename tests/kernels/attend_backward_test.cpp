// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "tests/kernels/central_difference.h"
#include "tests/kernels/each_plugin.h"
#include "tests/kernels/small_backward.h"

using namespace msabench::plugin_test;

namespace {

class attend_backward : public each_plugin {};

MSABENCH_FOR_EACH_PLUGIN(attend_backward);

}  // namespace

TEST_P(attend_backward, every_type_and_stride) {
  for (const bool dense : {false, true})
    for (const auto type : {fp32_type, bf16_type, fp16_type})
      for (const bool padded : {false, true}) {
        SCOPED_TRACE(std::to_string(dense) + " " + std::to_string(type.code) + "," + std::to_string(type.bits));
        expect_right(small_backward({.type = type, .padded_strides = padded, .dense = dense}));
      }
}

TEST_P(attend_backward, heads_dimensions_and_blocks) {
  const attend_shape shapes[] = {
      {.hq = 1, .hkv = 1, .d = 1, .block = 1, .topk = 1},    {.hq = 6, .hkv = 3, .d = 7, .block = 5, .topk = 2},
      {.hq = 16, .hkv = 1, .d = 80, .block = 16, .topk = 4}, {.hq = 3, .hkv = 3, .d = 64, .block = 128, .topk = 1},
      {.hq = 8, .hkv = 4, .d = 24, .block = 3, .topk = 100}, {.hq = 8, .hkv = 2, .d = 16, .softmax_scale = 0.7}};
  for (attend_shape shape : shapes)
    for (const bool dense : {false, true}) {
      shape.dense = dense;
      SCOPED_TRACE("d " + std::to_string(shape.d) + (dense ? " dense" : ""));
      expect_right(small_backward(shape));
    }
}

// 128 keys are taken at a time where there are no blocks.
TEST_P(attend_backward, every_length_around_its_tiles) {
  attend_shape shape{.hq = 2, .hkv = 1, .d = 4, .sequences = {}, .dense = true};
  for (const std::int32_t length : {1, 127, 128, 129, 255, 256, 257, 300})
    shape.sequences.emplace_back(std::min(length, 3), length);
  expect_right(small_backward(shape));
}

// Fast kernels take some hundred rows at a time, of neighbours or of whoever reads a block, and 64 columns.
TEST_P(attend_backward, many_rows_of_a_block) {
  for (const bool dense : {false, true}) {
    expect_right(small_backward(
        {.hq = 2, .hkv = 1, .d = 70, .block = 16, .topk = 3, .sequences = {{150, 150}}, .dense = dense}));
    expect_right(small_backward(
        {.hq = 32, .hkv = 1, .d = 4, .block = 64, .topk = 2, .sequences = {{40, 90}, {9, 300}}, .dense = dense}));
    expect_right(
        small_backward({.hq = 130, .hkv = 1, .d = 4, .block = 8, .topk = 2, .sequences = {{3, 30}}, .dense = dense}));
    expect_right(
        small_backward({.hq = 4, .hkv = 2, .d = 8, .block = 200, .topk = 2, .sequences = {{5, 450}}, .dense = dense}));
  }
}

TEST_P(attend_backward, ids_may_be_short_and_lenient) {
  for (const auto form : {MSABENCH_FORM_SHORT, MSABENCH_FORM_LENIENT})
    for (unsigned seed = 0; seed < 4; ++seed)
      expect_right(small_backward({.topk = 6, .sequences = {{9, 80}, {4, 4}, {1, 33}}, .form = form}, seed));
}

TEST_P(attend_backward, gradients_are_differences_of_attention) {
  for (const bool dense : {false, true}) {
    small_backward test({.hq = 4, .hkv = 2, .d = 3, .topk = 2, .sequences = {{4, 30}, {0, 4}, {2, 2}}, .dense = dense});
    session plan(plugin(), test.problem);
    arguments args = test.args();
    ASSERT_EQ(plan.run(args), MSABENCH_OK);
    small_attend& forward = test.forward;
    // <d_out, out>, whose gradients are dq, dk and dv.
    const auto objective = [&] {
      double sum = 0;
      for (std::int64_t row = 0; row < forward.tokens(); ++row)
        for (std::int32_t head = 0; head < 4; ++head) {
          const auto out = forward.expected(row, head).out;
          for (std::int64_t c = 0; c < 3; ++c) sum += test.d_out.get({row, head, c}) * out[static_cast<std::size_t>(c)];
        }
      return sum;
    };
    const struct {
      buffer& of;
      const buffer& gradient;
      std::int64_t lines;
    } all[] = {{forward.q, test.dq, forward.tokens()},
               {forward.k, test.dk, forward.k.shape()[0]},
               {forward.v, test.dv, forward.v.shape()[0]}};
    for (const auto& [of, gradient, lines] : all)
      for (std::int64_t line = 0; line < lines; ++line)
        for (std::int64_t head = 0; head < of.shape()[1]; ++head)
          for (std::int64_t c = 0; c < 3; ++c)
            EXPECT_NEAR(gradient.get({line, head, c}), central_difference(of, {line, head, c}, objective), 1e-5)
                << line << " " << head;
  }
}

TEST_P(attend_backward, what_nothing_adds_to_is_zero) {
  small_backward test({.topk = 1, .sequences = {{1, 0}, {0, 20}, {2, 40}}});
  session plan(plugin(), test.problem);
  arguments args = test.args();
  ASSERT_EQ(plan.run(args), MSABENCH_OK);
  EXPECT_EQ(test.fault().value_or("none"), "none");
  for (std::int64_t c = 0; c < 16; ++c) {
    EXPECT_EQ(test.dq.get({0, 3, c}), 0);  // a padding row, whose lse is -infinity
    EXPECT_EQ(test.dk.get({7, 1, c}), 0);  // of a sequence without query tokens
    EXPECT_EQ(test.dv.get({7, 1, c}), 0);
  }
}

TEST_P(attend_backward, gradients_are_overwritten) {
  small_backward test({});
  session plan(plugin(), test.problem);
  arguments args = test.args();
  ASSERT_EQ(plan.run(args), MSABENCH_OK);
  const auto once = test.dk.bytes();
  ASSERT_EQ(plan.run(args), MSABENCH_OK);
  EXPECT_EQ(test.dk.bytes(), once);
}

TEST_P(attend_backward, threads_change_no_bit) {
  small_backward test({.sequences = {{20, 100}, {3, 60}}});
  std::vector<std::vector<std::byte>> bits;
  for (const int threads : {1, 2, 5}) {
    session plan(with_threads(threads), test.problem);
    arguments args = test.args();
    ASSERT_EQ(plan.run(args), MSABENCH_OK);
    bits.push_back(test.dq.bytes());
    bits.push_back(test.dk.bytes());
    bits.push_back(test.dv.bytes());
  }
  for (std::size_t i = 3; i < bits.size(); ++i) EXPECT_EQ(bits[i], bits[i % 3]);
}

TEST_P(attend_backward, gradients_may_be_short) {
  small_backward test({.type = bf16_type});
  test.problem.grad = bf16_type;
  for (buffer* b : {&test.dq, &test.dk, &test.dv}) *b = buffer(bf16_type, b->shape());
  expect_right(std::move(test));
}

TEST_P(attend_backward, empty_batches_touch_nothing) {
  expect_right(small_backward({.sequences = {}}));
  expect_right(small_backward({.sequences = {{0, 0}}, .spare_rows = 0, .dense = true}));
}

TEST_P(attend_backward, problems_and_tensors_are_checked) {
  small_backward test({});
  const auto refused = [&](auto change, const char* field) {
    msabench_problem problem = test.problem;
    change(problem);
    msabench_plan* plan = nullptr;
    EXPECT_NE(plugin()->plan(&problem, &plan), MSABENCH_OK) << field;
    EXPECT_EQ(std::string(plugin()->last_error()).rfind(field, 0), 0u) << plugin()->last_error();
  };
  refused([](auto& p) { p.page_layout = 1, p.page_size = 8; }, "page_layout 1");
  refused([](auto& p) { p.kv = {10, 8, 1}; }, "kv {10,8,1}");
  refused([](auto& p) { p.grad = {2, 64, 1}; }, "grad {2,64,1}");
  refused([](auto& p) { p.profile.batch_invariant = 1; }, "profile.batch_invariant 1");
  session made(plugin(), test.problem);
  for (const auto& [slot, text] : {std::pair{MSABENCH_LSE, "lse absent"}, std::pair{MSABENCH_IDS, "ids absent"},
                                   std::pair{MSABENCH_D_OUT, "d_out absent"}, std::pair{MSABENCH_DV, "dv absent"}}) {
    arguments args = test.args();
    args.remove(slot);
    EXPECT_EQ(made.run(args), MSABENCH_INVALID_PROBLEM);
    EXPECT_EQ(std::string(plugin()->last_error()).rfind(text, 0), 0u) << plugin()->last_error();
  }
  EXPECT_TRUE(test.dk.untouched({0, 0, 0}));
}

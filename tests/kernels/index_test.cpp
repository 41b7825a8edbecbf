// SPDX-License-Identifier: Apache-2.0
// score and index, and the storage types.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/common/storage.h"
#include "tests/kernels/each_plugin.h"
#include "tests/kernels/small_index.h"

using namespace msabench::plugin_test;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double no_number = std::numeric_limits<double>::quiet_NaN();

class index_branch : public each_plugin {};

MSABENCH_FOR_EACH_PLUGIN(index_branch);

const index_shape shapes[] = {{},
                              {.di = 7, .page_size = 8},
                              {.heads = 1, .di = 128, .page_size = 3},
                              {.heads = 4, .block = 1, .topk = 7, .init_blocks = 2, .page_size = 32},
                              {.topk = 3, .local_blocks = 0, .type = bf16_type, .index_scale = 0.5},
                              {.block = 128, .topk = 1, .page_size = 128, .type = bf16_type},
                              {.topk = 5, .local_blocks = 3, .init_blocks = 2, .sequences = {{1, 600}, {130, 130}}}};

}  // namespace

TEST_P(index_branch, scores_agree_with_double_loops) {
  for (const auto& shape : shapes) {
    for (unsigned seed = 0; seed < 2; ++seed) {
      small_index test(MSABENCH_OP_SCORE, shape, seed);
      expect_right(test);
    }
  }
}

TEST_P(index_branch, ids_agree_with_double_loops) {
  for (const auto& shape : shapes) {
    for (unsigned seed = 0; seed < 2; ++seed) {
      small_index test(MSABENCH_OP_INDEX, shape, seed);
      expect_right(test);
    }
  }
}

TEST_P(index_branch, nan_keys_are_ignored_and_infinite_ones_are_not) {
  small_index test(MSABENCH_OP_SCORE, {.heads = 1, .sequences = {{2, 40}}});
  for (std::int64_t j = 8; j < 16; ++j) test.set_key(0, j, 3, no_number);
  test.set_key(0, 20, 5, no_number);
  test.set_key(0, 30, 0, infinity);
  for (const std::int64_t row : {0, 1}) test.q_idx.set({row, 0, 0}, 2);
  expect_right(test);
  EXPECT_EQ(test.scores.get({0, 0, 1}), -infinity);
  EXPECT_EQ(test.scores.get({0, 0, 3}), infinity);
  EXPECT_TRUE(std::isfinite(test.scores.get({0, 1, 2})));
}

TEST_P(index_branch, negative_scores_stay_negative) {
  small_index test(MSABENCH_OP_SCORE, {.heads = 1, .sequences = {{1, 40}}});
  test.q_idx.set({0, 0, 0}, 10);
  for (std::int64_t j = 0; j < 40; ++j) test.set_key(0, j, 0, -20);
  expect_right(test);
  for (std::int64_t b = 0; b < 5; ++b) EXPECT_LT(test.scores.get({0, 0, b}), -1);
}

TEST_P(index_branch, a_long_row_is_cut_into_tasks_that_agree) {
  small_index test(MSABENCH_OP_SCORE, {.heads = 1, .di = 8, .block = 2, .sequences = {{1, 1001}, {2, 300}}});
  expect_right(test);
}

TEST_P(index_branch, a_row_of_many_strips_is_shared_out) {
  for (const auto type : {fp32_type, bf16_type, fp16_type}) {
    small_index test(
        MSABENCH_OP_INDEX,
        {.di = 20, .topk = 6, .init_blocks = 1, .page_size = 24, .type = type, .sequences = {{1, 20000}, {2, 9000}}});
    expect_right(test);
    const auto ids = test.ids.bytes(), lse = test.lse_idx.bytes();
    for (const int threads : {1, 3, 16}) {
      test.ids.poison();
      test.lse_idx.poison();
      const msabench_plugin* with_threads = load_plugin(path(), threads);
      session plan(with_threads, test.problem);
      arguments args = test.args();
      ASSERT_EQ(plan.run(args), MSABENCH_OK) << with_threads->last_error();
      EXPECT_EQ(test.ids.bytes(), ids) << threads;
      EXPECT_EQ(test.lse_idx.bytes(), lse) << threads;
    }
  }
}

TEST_P(index_branch, equal_scores_go_to_the_lower_block) {
  small_index test(MSABENCH_OP_INDEX, {.heads = 1, .topk = 3, .sequences = {{1, 64}}});
  for (std::int64_t j = 0; j < 64; ++j) {
    for (std::int64_t c = 0; c < test.shape.di; ++c) test.set_key(0, j, c, 0.5);
  }
  expect_right(test);
  EXPECT_EQ(test.ids.get({0, 0, 1}), 1);
  EXPECT_EQ(test.ids.get({0, 0, 2}), 7);
}

TEST_P(index_branch, lse_is_written_only_where_it_is_wanted) {
  small_index test(MSABENCH_OP_INDEX, {});
  session plan(plugin(), test.problem);
  arguments args = test.args();
  args.remove(MSABENCH_LSE_IDX);
  ASSERT_EQ(plan.run(args), MSABENCH_OK) << plugin()->last_error();
  EXPECT_TRUE(test.lse_idx.untouched({0, 0}));
  EXPECT_FALSE(test.ids.untouched({0, 0, 0}));
}

TEST_P(index_branch, declares_chains_of_the_index_branch) {
  small_index test(MSABENCH_OP_INDEX, {.di = 128, .block = 16, .topk = 3, .type = bf16_type});
  session plan(plugin(), test.problem);
  // naive: an eighth of the products in each lane. cpu: a chain of 128.
  const bool naive = GetParam().file == std::string("naive");
  EXPECT_EQ(plan.capability().numerics.chain_score, naive ? 21u : 130u);
  EXPECT_LE(plan.capability().numerics.chain_row_sum, naive ? 19u : 48u);
  EXPECT_EQ(plan.capability().numerics.operand.code, bf16_type.code);
  EXPECT_EQ(plan.capability().profile.ties_low_id, 1);
}

// Every fp16 value comes back from its own bits, and what lies between two goes to the nearer, of equally near ones to
// the even one.
TEST(storage, fp16) {
  using namespace msabench;
  const auto load = [](std::uint16_t bits) {
    float value = 0;
    kernels::load_row(&bits, kernels::fp16_type, 1, &value);
    return value;
  };
  const auto store = [](float value) {
    std::uint16_t bits = 0;
    kernels::store_row(&value, 1, kernels::fp16_type, &bits);
    return bits;
  };
  EXPECT_EQ(load(0x3c00), 1.0F);
  EXPECT_EQ(load(0x0001), 0x1p-24F);
  EXPECT_EQ(load(0x7bff), 65504.0F);
  EXPECT_TRUE(std::signbit(load(0x8000)));
  EXPECT_TRUE(std::isnan(load(0x7e01)));
  EXPECT_TRUE(std::isnan(load(store(std::nanf("")))));
  for (std::uint32_t bits = 0; bits <= 0x7c00; ++bits) {
    const auto own = static_cast<std::uint16_t>(bits);
    ASSERT_EQ(store(load(own)), own);
    ASSERT_EQ(store(-load(own)), own | 0x8000u);
    if (bits == 0x7c00) break;
    const double next = bits == 0x7bff ? 65536.0 : static_cast<double>(load(static_cast<std::uint16_t>(bits + 1)));
    const auto middle = static_cast<float>((static_cast<double>(load(own)) + next) / 2);
    const auto up = static_cast<std::uint16_t>(bits + 1);
    ASSERT_EQ(store(middle), bits % 2 == 0 ? own : up);
    ASSERT_EQ(store(std::nextafterf(middle, 1e30F)), up);
    ASSERT_EQ(store(std::nextafterf(middle, 0.0F)), own);
  }
}

// SPDX-License-Identifier: Apache-2.0
// Runs of the interpreted plugins that the suite has no cases of: plans with other bounds one after the other, bounds that
// say little, empty tensors without memory, and strides of axes of one element.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/kernels/small_attend.h"
#include "tests/kernels/small_backward.h"
#include "tests/kernels/small_index.h"
#include "tests/kernels/small_kl.h"

using namespace msabench::plugin_test;

namespace {

using lengths = std::vector<std::pair<std::int32_t, std::int32_t>>;

/// M3's, with one KV head.
attend_shape m3(lengths sequences, std::int32_t topk = 16) {
  attend_shape shape{.hq = 16, .hkv = 1, .d = 128, .block = 128, .topk = topk, .type = bf16_type};
  shape.sequences = std::move(sequences);
  return shape;
}

/// As small_attend::fault, of weights that are rounded to 16 bits.
std::string fault_of(const small_attend& test) {
  constexpr double open = 0.02;  // values are of order 1
  for (std::int64_t row = 0; row < test.tokens(); ++row)
    for (std::int32_t head = 0; head < test.shape.hq; ++head) {
      const expected_row want = test.expected(row, head);
      const std::string where = "row " + std::to_string(row) + " head " + std::to_string(head);
      const double lse = test.lse.get({row, head});
      if (lse != want.lse && !(std::abs(lse - want.lse) <= 4 * want.lse_limit))
        return where + ": lse " + std::to_string(lse) + ", expected " + std::to_string(want.lse);
      for (std::int64_t c = 0; c < test.shape.d; ++c)
        if (!(std::abs(test.out.get({row, head, c}) - want.out[static_cast<std::size_t>(c)]) <= open))
          return where + " channel " + std::to_string(c);
    }
  return "none";
}

class interpreted : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    plugin_ = load_plugin(std::string(MSABENCH_INTERPRETED) + "/" + GetParam() + "_interpreted.so");
    ASSERT_NE(plugin_, nullptr);
  }
  void run(session& plan, arguments args) {
    ASSERT_EQ(plan.status(), MSABENCH_OK) << plugin_->last_error();
    EXPECT_EQ(plan.run(args), MSABENCH_OK) << plugin_->last_error();
  }
  void run(const msabench_problem& problem, const arguments& args) {
    session plan(plugin_, problem);
    run(plan, args);
  }

  const msabench_plugin* plugin_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(plugins, interpreted, testing::Values("cuda", "cuda_sm90"),
                         [](const auto& tested) { return std::string(tested.param); });

// What a kernel may have of shared memory is a matter of the process, and runs can be at the same time (rule R5).
TEST_P(interpreted, takes_no_shared_memory_from_plans_with_other_bounds) {
  small_attend many(m3(lengths(64, {1, 130}))), one(m3({{1, 2100}}));
  small_attend few_blocks(m3({{1, 300}}, 3));
  small_backward wide(m3({{9, 300}})), narrow(m3({{9, 300}}, 2));
  session of_many(plugin_, many.problem), of_one(plugin_, one.problem), of_few(plugin_, few_blocks.problem);
  session of_wide(plugin_, wide.problem), of_narrow(plugin_, narrow.problem);
  for (int turn = 0; turn < 2; ++turn) {
    run(of_many, many.args());
    run(of_one, one.args());
    run(of_few, few_blocks.args());
    run(of_wide, wide.args());
    run(of_narrow, narrow.args());
  }
  EXPECT_EQ(fault_of(many), "none");
  EXPECT_EQ(fault_of(one), "none");
  EXPECT_EQ(fault_of(few_blocks), "none");
}

// A row past T belongs to nobody, and no workspace is for it.
TEST_P(interpreted, takes_more_rows_than_there_can_be_tokens) {
  for (const std::int64_t spare : {1, 40}) {
    attend_shape shape = m3({{9, 300}}, 3);
    shape.spare_rows = spare;
    small_backward gradients(shape);
    run(gradients.problem, gradients.args());
    small_kl loss(shape, {.di = 128});
    run(loss.problem, loss.args());
    EXPECT_LE(std::abs(loss.loss.get({0}) - loss.expected_loss()), 1e-4 * loss.expected_loss());
    for (std::int64_t row = 9; row < 9 + spare; ++row) {
      EXPECT_TRUE(gradients.dq.untouched({row, 0, 0}));
      EXPECT_TRUE(loss.dq_idx.untouched({row, 0, 0}));
    }
  }
}

TEST_P(interpreted, shares_scoring_kernels_among_plans_with_other_bounds) {
  std::vector<small_index> tests;
  for (const auto& sequences : {lengths{{40, 300}}, lengths{{1, 300}}, lengths{{3, 300}}, lengths{{200, 300}}})
    for (const std::int32_t topk : {16, 4})
      tests.emplace_back(
          MSABENCH_OP_INDEX,
          index_shape{.heads = 4, .di = 128, .block = 128, .topk = topk, .type = bf16_type, .sequences = sequences});
  for (small_index& test : tests) {
    run(test.problem, test.args());
    EXPECT_EQ(test.fault().value_or("none"), "none");
  }
}

TEST_P(interpreted, scores_keys_whatever_their_bound) {
  for (const std::int64_t bound : {std::int64_t{1} << 30, std::int64_t{std::numeric_limits<std::int32_t>::max()}}) {
    small_index test(MSABENCH_OP_INDEX,
                     {.heads = 1, .di = 128, .block = 128, .type = bf16_type, .sequences = {{1, 700}}});
    test.problem.max_kv_len = bound;
    run(test.problem, test.args());
    EXPECT_EQ(test.fault().value_or("none"), "none") << bound;
  }
}

TEST_P(interpreted, has_segments_that_are_bounded_by_their_tokens) {
  attend_shape shape{.hq = 1, .hkv = 1, .d = 64, .type = bf16_type, .sequences = {{600, 600}, {20, 20}}};
  shape.segments = true;
  small_attend test(shape);
  test.problem.max_kv_len = 0;
  run(test.problem, test.args());
  EXPECT_EQ(fault_of(test), "none");
}

TEST_P(interpreted, takes_empty_tensors_without_memory) {
  const auto without_memory = [](arguments args, std::initializer_list<msabench_slot> slots) {
    for (const msabench_slot slot : slots) args.at(slot).data = nullptr;
    return args;
  };
  attend_shape shape = m3({{0, 0}});
  shape.spare_rows = 0;
  small_kl empty(shape, {.di = 128});
  run(empty.problem, without_memory(empty.args(), {MSABENCH_Q, MSABENCH_K, MSABENCH_Q_IDX, MSABENCH_K_IDX, MSABENCH_IDS,
                                                   MSABENCH_DQ_IDX, MSABENCH_DK_IDX, MSABENCH_DQ, MSABENCH_DK}));
  EXPECT_EQ(empty.fault().value_or("none"), "none");
  shape.dense = true;
  small_attend dense(shape);
  // A plan for more than there is.
  dense.problem.total_q = dense.problem.max_q_len = dense.problem.max_kv_len = 200;
  run(dense.problem, without_memory(dense.args(), {MSABENCH_Q, MSABENCH_K, MSABENCH_V, MSABENCH_OUT, MSABENCH_LSE}));
}

// As x.unsqueeze(-1).transpose(1, 2) of PyTorch has them.
TEST_P(interpreted, takes_any_stride_of_an_axis_of_one_element) {
  small_kl heads(m3({{9, 200}}), {.di = 128});
  arguments args = heads.args();
  const std::array<std::int64_t, 3> one_head{128, 1, 1};
  args.at(MSABENCH_Q_IDX).strides = one_head.data();
  run(heads.problem, args);
  EXPECT_LE(std::abs(heads.loss.get({0}) - heads.expected_loss()), 1e-4 * heads.expected_loss());

  attend_shape shape = m3({{1, 200}});
  shape.spare_rows = 0;
  small_backward row(shape);
  args = row.args();
  const std::array<std::int64_t, 3> one_row{3, 128, 1};
  for (const msabench_slot slot : {MSABENCH_Q, MSABENCH_D_OUT}) args.at(slot).strides = one_row.data();
  run(row.problem, args);

  small_index page(
      MSABENCH_OP_INDEX,
      {.heads = 4, .di = 128, .block = 128, .page_size = 128, .type = bf16_type, .sequences = {{40, 100}}});
  args = page.args();
  // The one page of two that the sequence has.
  const std::array<std::int64_t, 3> one_page{7, 128, 1}, shape_of_one{1, 128, 128};
  msabench_tensor& keys = args.at(MSABENCH_K_IDX);
  keys.data = static_cast<std::byte*>(keys.data) + 128 * 128 * 2;
  keys.shape = shape_of_one.data();
  keys.strides = one_page.data();
  page.block_table_idx.set({0, 0}, 0);
  page.problem.pool_pages = 1;
  run(page.problem, args);
  page.block_table_idx.set({0, 0}, 1);
  EXPECT_EQ(page.fault().value_or("none"), "none");
}

TEST_P(interpreted, weighs_keys_alike_where_the_scale_is_nothing_in_fp32) {
  for (const auto& sequences : {lengths{{70, 300}}, lengths{{1, 300}}, lengths{{9, 300}}}) {
    attend_shape shape = m3(sequences, 3);
    shape.softmax_scale = 1e-50;
    small_attend test(shape);
    run(test.problem, test.args());
    EXPECT_EQ(fault_of(test), "none") << sequences[0].first;
  }
}

// Nobody has keys, so there are no blocks to count.
TEST(interpreted_e4m3, takes_rows_without_keys) {
  constexpr msabench_dtype e4m3{10, 8, 1};
  const msabench_plugin* const plugin = load_plugin(std::string(MSABENCH_INTERPRETED) + "/cuda_sm90_interpreted.so");
  attend_shape shape = m3({{2, 0}});
  small_attend test(shape);
  test.problem.kv = e4m3;
  arguments args = test.args();
  for (const msabench_slot slot : {MSABENCH_K, MSABENCH_V}) args.at(slot).dtype = e4m3;
  session plan(plugin, test.problem);
  ASSERT_EQ(plan.status(), MSABENCH_OK) << plugin->last_error();
  EXPECT_EQ(plan.run(args), MSABENCH_OK) << plugin->last_error();
  EXPECT_EQ(fault_of(test), "none");
}

}  // namespace

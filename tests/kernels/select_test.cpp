// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>

#include "tests/kernels/each_plugin.h"
#include "tests/kernels/small_select.h"

using namespace msabench::plugin_test;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double no_number = std::numeric_limits<double>::quiet_NaN();
using id_list = std::vector<std::int32_t>;

class select_blocks : public each_plugin {
 protected:
  void run(small_select& test) {
    session plan(plugin(), test.problem);
    ASSERT_EQ(plan.status(), MSABENCH_OK) << plugin()->last_error();
    arguments args = test.args();
    ASSERT_EQ(plan.run(args), MSABENCH_OK) << plugin()->last_error();
  }

  /// One token of one head, eight blocks of one key each, all visible.
  id_list select_one(const std::vector<double>& scores, std::int32_t topk, std::int32_t local, std::int32_t initial) {
    const auto blocks = static_cast<std::int32_t>(scores.size());
    small_select test({.hkv = 1,
                       .block = 1,
                       .topk = topk,
                       .local_blocks = local,
                       .init_blocks = initial,
                       .sequences = {{1, blocks}}});
    for (std::int64_t b = 0; b < blocks; ++b) test.scores.set({0, 0, b}, scores[static_cast<std::size_t>(b)]);
    run(test);
    return test.got(0, 0);
  }
};

MSABENCH_FOR_EACH_PLUGIN(select_blocks);

}  // namespace

TEST_P(select_blocks, agrees_with_sorting) {
  const select_shape shapes[] = {{},
                                 {.topk = 1},
                                 {.topk = 16},
                                 {.topk = 5, .local_blocks = 2, .init_blocks = 3},
                                 {.topk = 3, .local_blocks = 0},
                                 {.hkv = 3, .block = 1, .topk = 7, .local_blocks = 0, .init_blocks = 2},
                                 {.hkv = 1, .block = 128, .topk = 2}};
  for (const auto& shape : shapes) {
    for (unsigned seed = 0; seed < 4; ++seed) {
      small_select test(shape, seed);
      run(test);
      EXPECT_EQ(test.fault().value_or("none"), "none") << "topk " << shape.topk << " seed " << seed;
    }
  }
}

TEST_P(select_blocks, ties_go_to_the_lower_id) {
  EXPECT_EQ(select_one({0, 0, 0, 0, 0, 0, 0, 0}, 3, 0, 0), (id_list{0, 1, 2}));
  EXPECT_EQ(select_one({0, 0, 0, 0, 0, 0, 0, 0}, 3, 1, 0), (id_list{0, 1, 7}));
  EXPECT_EQ(select_one({-0.0, 0.0, -0.0, 0.0, -1, -1, -1, -1}, 3, 0, 0), (id_list{0, 1, 2}));
}

TEST_P(select_blocks, no_value_is_a_sentinel) {
  EXPECT_EQ(select_one({no_number, -infinity, -3e38, infinity, 3e38, 1e30, 0, -5}, 3, 0, 0), (id_list{3, 4, 5}));
  // NaN ranks as -infinity: both come last, by id.
  EXPECT_EQ(select_one({no_number, -infinity, -3e38, 0, no_number, 1, 2, 3}, 6, 0, 0), (id_list{0, 2, 3, 5, 6, 7}));
  EXPECT_EQ(
      select_one({no_number, no_number, no_number, no_number, no_number, no_number, no_number, no_number}, 2, 0, 0),
      (id_list{0, 1}));
  // Forced blocks don't depend on their scores.
  EXPECT_EQ(select_one({-infinity, 1, 2, 3, 4, 5, 6, no_number}, 3, 1, 1), (id_list{0, 6, 7}));
}

TEST_P(select_blocks, few_blocks_are_all_selected) {
  EXPECT_EQ(select_one({no_number, -infinity, 1}, 5, 1, 0), (id_list{0, 1, 2, -1, -1}));
  EXPECT_EQ(select_one({1, 2, 3}, 3, 2, 1), (id_list{0, 1, 2}));
}

TEST_P(select_blocks, padding_rows_are_all_minus_one) {
  small_select test({.sequences = {{1, 0}, {2, 40}, {1, 0}}});
  run(test);
  EXPECT_EQ(test.got(0, 0), (id_list{-1, -1, -1, -1}));
  EXPECT_EQ(test.got(3, 1), (id_list{-1, -1, -1, -1}));
  EXPECT_EQ(test.fault().value_or("none"), "none");
}

TEST_P(select_blocks, empty_batches_touch_nothing) {
  small_select test({.sequences = {}});
  run(test);
  EXPECT_EQ(test.fault().value_or("none"), "none");
}

TEST_P(select_blocks, many_blocks_in_clusters) {
  // 8192 candidates, most of them equal, winners at both ends.
  std::vector<double> scores(8192, -1.0);
  for (const std::size_t b : {3u, 4095u, 4096u, 8190u}) scores[b] = 1e-3 * static_cast<double>(b);
  EXPECT_EQ(select_one(scores, 6, 1, 0), (id_list{0, 3, 4095, 4096, 8190, 8191}));
}

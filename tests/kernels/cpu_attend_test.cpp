// SPDX-License-Identifier: Apache-2.0
// What only the fast kernels have: rows in several chunks, shared out over threads.
#include <gtest/gtest.h>

#include <limits>

#include "tests/kernels/each_plugin.h"
#include "tests/kernels/small_attend.h"

using namespace msabench::plugin_test;

namespace {

class cpu_attend : public each_plugin {
 protected:
  /// The bits of out and lse after a run by so many threads.
  std::pair<std::vector<std::byte>, std::vector<std::byte>> run(small_attend& test, int threads) {
    test.out.poison();
    test.lse.poison();
    const msabench_plugin* with_threads = load_plugin(path(), threads);
    session plan(with_threads, test.problem);
    EXPECT_EQ(plan.status(), MSABENCH_OK) << with_threads->last_error();
    arguments args = test.args();
    EXPECT_EQ(plan.run(args), MSABENCH_OK) << with_threads->last_error();
    return {test.out.bytes(), test.lse.bytes()};
  }
};

MSABENCH_FOR_EACH_PLUGIN(cpu_attend);

/// 2048 and fewer selected keys: four chunks.
attend_shape long_rows() {
  return {.hq = 6, .hkv = 2, .d = 40, .block = 128, .topk = 16, .sequences = {{1, 2900}, {2, 1300}, {1, 0}, {1, 513}}};
}

}  // namespace

TEST_P(cpu_attend, rows_of_many_chunks) {
  for (const auto type : {fp32_type, bf16_type, fp16_type}) {
    attend_shape shape = long_rows();
    shape.type = type;
    small_attend test(shape);
    run(test, 2);
    EXPECT_EQ(test.fault().value_or("none"), "none");
  }
}

TEST_P(cpu_attend, any_number_of_threads_gives_the_same_bits) {
  small_attend test(long_rows());
  const auto alone = run(test, 1);
  // Two threads find tasks enough in tokens and heads, eight share out the keys of a row.
  for (const int threads : {2, 3, 8}) EXPECT_EQ(run(test, threads), alone) << threads;
}

// Blocks of 64 keys and more are loaded once for all tokens of a tile that have them; the more threads, the smaller tiles.
TEST_P(cpu_attend, tokens_that_share_blocks_get_the_bits_that_they_get_alone) {
  for (const std::int32_t block : {64, 100, 128, 200}) {
    for (const std::int32_t page_size : {0, 16}) {
      attend_shape shape{.hq = 6, .hkv = 2, .d = 36, .block = block, .topk = 5};
      shape.page_layout = page_size == 0 ? 0 : 1;
      shape.page_size = page_size;
      shape.sequences = {{1, 0}, {37, 30}, {50, 1100}, {3, 3}, {70, 700}};
      small_attend test(shape);
      const auto alone = run(test, 1);
      EXPECT_EQ(test.fault().value_or("none"), "none") << block;
      for (const int threads : {2, 3}) EXPECT_EQ(run(test, threads), alone) << block << ' ' << threads;
    }
  }
}

TEST_P(cpu_attend, a_row_does_not_depend_on_the_batch) {
  small_attend both(long_rows());
  attend_shape shape = long_rows();
  shape.spare_rows = 0;
  shape.sequences = {{1, 2900}};
  small_attend first(shape);
  run(both, 2);
  for (std::int64_t j = 0; j < 2900; ++j) {
    for (std::int64_t head = 0; head < 2; ++head) {
      for (std::int64_t c = 0; c < 40; ++c) {
        first.k.set({j, head, c}, both.k.get({j, head, c}));
        first.v.set({j, head, c}, both.v.get({j, head, c}));
      }
    }
  }
  for (std::int64_t head = 0; head < 6; ++head) {
    for (std::int64_t c = 0; c < 40; ++c) first.q.set({0, head, c}, both.q.get({0, head, c}));
  }
  for (std::int64_t head = 0; head < 2; ++head) {
    for (std::int64_t slot = 0; slot < 16; ++slot) first.ids.set({0, head, slot}, both.ids.get({0, head, slot}));
  }
  run(first, 1);
  for (std::int64_t head = 0; head < 6; ++head) {
    EXPECT_EQ(first.lse.get({0, head}), both.lse.get({0, head}));
    for (std::int64_t c = 0; c < 40; ++c) EXPECT_EQ(first.out.get({0, head, c}), both.out.get({0, head, c}));
  }
}

TEST_P(cpu_attend, what_is_not_selected_may_be_nan) {
  small_attend test(long_rows());
  // No row of the first sequence selects this block any more.
  const std::int64_t block = 3;
  for (std::int64_t head = 0; head < 2; ++head) {
    for (std::int64_t slot = 0; slot < 16; ++slot) {
      if (test.ids.get({0, head, slot}) == static_cast<double>(block)) {
        for (std::int64_t after = slot; after < 15; ++after)
          test.ids.set({0, head, after}, test.ids.get({0, head, after + 1}));
        test.ids.set({0, head, 15}, -1);
      }
    }
  }
  test.problem.profile.in_id_form = MSABENCH_FORM_SHORT;
  for (std::int64_t j = block * 128; j < (block + 1) * 128; ++j) {
    for (std::int64_t head = 0; head < 2; ++head) {
      for (std::int64_t c = 0; c < 40; ++c) {
        test.k.set({j, head, c}, std::numeric_limits<double>::quiet_NaN());
        test.v.set({j, head, c}, std::numeric_limits<double>::quiet_NaN());
      }
    }
  }
  run(test, 2);
  EXPECT_EQ(test.fault().value_or("none"), "none");
}

TEST_P(cpu_attend, negative_and_tiny_scales) {
  for (const double scale : {-0.3, 1e-6}) {
    attend_shape shape = long_rows();
    shape.softmax_scale = scale;
    small_attend test(shape);
    run(test, 2);
    EXPECT_EQ(test.fault().value_or("none"), "none") << scale;
  }
}

// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/each_plugin.h"
#include "tests/kernels/small_attend.h"

using namespace msabench::plugin_test;

namespace {

class attend : public each_plugin {};

struct layout {
  std::int32_t page_layout, page_size;
};

MSABENCH_FOR_EACH_PLUGIN(attend);

}  // namespace

TEST_P(attend, every_layout_type_and_page_size) {
  for (const auto& [page_layout, page_size] : {layout{0, 0}, layout{1, 8}, layout{1, 1}, layout{1, 3}, layout{1, 16},
                                               layout{1, 128}, layout{2, 8}, layout{2, 5}}) {
    for (const auto type : {fp32_type, bf16_type, fp16_type}) {
      for (const bool padded : {false, true}) {
        SCOPED_TRACE(std::to_string(page_layout) + " " + std::to_string(page_size) + " " + std::to_string(type.code) +
                     "," + std::to_string(type.bits));
        small_attend test({.page_layout = page_layout, .page_size = page_size, .type = type, .padded_strides = padded});
        expect_right(test);
      }
    }
  }
}

TEST_P(attend, heads_dimensions_and_blocks) {
  const attend_shape shapes[] = {
      {.hq = 1, .hkv = 1, .d = 1, .block = 1, .topk = 1},    {.hq = 6, .hkv = 3, .d = 7, .block = 5, .topk = 2},
      {.hq = 16, .hkv = 1, .d = 80, .block = 16, .topk = 4}, {.hq = 3, .hkv = 3, .d = 64, .block = 128, .topk = 1},
      {.hq = 8, .hkv = 4, .d = 24, .block = 3, .topk = 100}, {.hq = 64, .hkv = 4, .d = 128, .block = 16, .topk = 3}};
  for (const auto& shape : shapes) {
    SCOPED_TRACE("d " + std::to_string(shape.d));
    small_attend test(shape);
    expect_right(test);
  }
}

TEST_P(attend, every_length_and_query_length) {
  attend_shape shape{.hq = 2, .hkv = 1, .d = 4, .block = 4, .topk = 2, .sequences = {}};
  for (std::int32_t length = 0; length <= 17; ++length) {
    for (std::int32_t query = 0; query <= length; query += 3) shape.sequences.emplace_back(query, length);
  }
  small_attend test(shape);
  expect_right(test);
}

TEST_P(attend, ids_may_be_short_and_lenient) {
  for (const auto form : {MSABENCH_FORM_SHORT, MSABENCH_FORM_LENIENT}) {
    for (unsigned seed = 0; seed < 8; ++seed) {
      small_attend test({.topk = 6, .sequences = {{9, 80}, {4, 4}, {1, 33}}, .form = form}, seed);
      expect_right(test);
      session plan(plugin(), test.problem);
      EXPECT_EQ(plan.capability().profile.in_id_form, form);
    }
  }
}

TEST_P(attend, padding_rows_and_rows_without_keys_are_empty) {
  small_attend test({.sequences = {{1, 0}, {3, 20}, {1, 0}}});
  for (std::int64_t head = 0; head < 2; ++head) {
    for (std::int64_t slot = 0; slot < 3; ++slot) test.ids.set({2, head, slot}, -1);
  }
  // A padding token sees nothing, whatever its ids say.
  test.ids.set({0, 0, 0}, 0);
  test.ids.set({4, 1, 0}, 0);
  session plan(plugin(), test.problem);
  arguments args = test.args();
  ASSERT_EQ(plan.run(args), MSABENCH_OK);
  for (const std::int64_t row : {0, 2, 4}) {
    for (std::int64_t head = 0; head < 4; ++head) {
      EXPECT_EQ(test.lse.get({row, head}), -std::numeric_limits<double>::infinity());
      for (std::int64_t c = 0; c < 16; ++c) EXPECT_EQ(test.out.get({row, head, c}), 0);
    }
  }
  EXPECT_TRUE(std::isfinite(test.lse.get({1, 0})));
}

TEST_P(attend, empty_batches_touch_nothing) {
  small_attend nobody({.sequences = {}});
  expect_right(nobody);
  small_attend no_tokens({.sequences = {{0, 0}, {0, 12}}, .spare_rows = 0});
  session plan(plugin(), no_tokens.problem);
  arguments args = no_tokens.args();
  for (const auto slot : {MSABENCH_Q, MSABENCH_IDS, MSABENCH_OUT, MSABENCH_LSE}) args.at(slot).data = nullptr;
  EXPECT_EQ(plan.run(args), MSABENCH_OK) << plugin()->last_error();
}

TEST_P(attend, lse_is_optional) {
  small_attend test({});
  session plan(plugin(), test.problem);
  arguments args = test.args();
  ASSERT_EQ(plan.run(args), MSABENCH_OK);
  const auto with_lse = test.out.bytes();
  test.out.poison();
  test.lse.poison();
  args.remove(MSABENCH_LSE);
  ASSERT_EQ(plan.run(args), MSABENCH_OK);
  EXPECT_EQ(test.out.bytes(), with_lse);
  EXPECT_TRUE(test.lse.untouched({0, 0}));
}

TEST_P(attend, another_scale_and_large_logits) {
  small_attend scaled({.softmax_scale = 0.05});
  expect_right(scaled);
  // Logits near -6e4: a finite stand-in for -infinity would show.
  small_attend low({.d = 1, .softmax_scale = 6e4});
  for (std::int64_t row = 0; row < low.tokens(); ++row) {
    for (std::int64_t head = 0; head < 4; ++head) low.q.set({row, head, 0}, -1);
  }
  for (std::int64_t j = 0; j < low.k.shape()[0]; ++j) {
    for (std::int64_t head = 0; head < 2; ++head) low.k.set({j, head, 0}, 1);
  }
  expect_right(low);
}

TEST_P(attend, what_no_row_sees_never_contributes) {
  small_attend test({.block = 8, .page_layout = 1, .page_size = 8, .sequences = {{2, 13}}});
  const auto page = static_cast<std::int64_t>(test.block_table.get({0, 1}));
  for (std::int64_t offset = 5; offset < 8; ++offset) {
    for (std::int64_t head = 0; head < 2; ++head) {
      for (std::int64_t c = 0; c < 16; ++c) {
        test.k.set({page, head, offset, c}, std::numeric_limits<double>::quiet_NaN());
        test.v.set({page, head, offset, c}, std::numeric_limits<double>::quiet_NaN());
      }
    }
  }
  expect_right(test);
}

TEST_P(attend, mixes_output_types) {
  small_attend test({.type = bf16_type});
  test.problem.out = fp32_type;
  test.out = buffer(fp32_type, test.out.shape());
  expect_right(test);
}

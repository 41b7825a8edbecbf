// SPDX-License-Identifier: Apache-2.0
#include "reference/vit3d.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>

#include "batch.h"
#include "core/error.h"
#include "reference/vit_attend.h"
#include "vision.h"

namespace msabench::reference {
namespace {

using testing::expect_near_row;
using testing::expect_same_bits;
using testing::item;
using testing::place_by_division;
using testing::plain_attention;
using testing::plain_rotation;
using testing::vision;
using testing::vision_spec;

constexpr score_error every_term{1e-4, 2e-4, 3e-5, 1e-6, 1e-6, 2e-6, 3e-8, 1e-9};

vit3d_inputs inputs_of(const vision& v) { return {v.p(), v.q(), v.k(), v.v(), v.grids(), v.spec().merge}; }
std::vector<attend_row> all(const vision& v) { return vit3d(inputs_of(v), v.all_rows(), every_term).rows; }

// Attention of one token over the tokens first .. first + tokens - 1, rotated in long double.
attend_row plain(const vision& of, std::int64_t row, std::int64_t head, std::int64_t first, std::int64_t tokens) {
  std::vector<std::vector<long double>> k, v;
  for (std::int64_t j = first; j < first + tokens; ++j) {
    k.push_back(plain_rotation(of.spec(), of.k(), j, head));
    std::vector<long double> value;
    for (std::int64_t c = 0; c < of.spec().d; ++c) value.push_back(of.v().at(j, head, c));
    v.push_back(value);
  }
  return plain_attention(plain_rotation(of.spec(), of.q(), row, head), k, v,
                         1 / std::sqrt(static_cast<long double>(of.spec().d)), every_term);
}

TEST(vit3d, windows_1_4_and_unlimited_follow_the_plain_formulas) {
  for (const std::int32_t window : {1, 4, 0}) {
    const vision v({.items = {{6, 2, 4}, {1, 4, 2}}, .window = window});
    for (const auto& row : all(v)) {
      const auto at = place_by_division(v.spec(), row.row);
      expect_near_row(row, plain(v, row.row, row.head, at.first, at.tokens), 1e-12);
    }
  }
}

TEST(vit3d, types_and_odd_shapes_follow_the_plain_formulas) {
  const vision_spec specs[] = {{.items = {{3, 4, 4}}, .type = bf16},
                               {.items = {{3, 4, 4}}, .type = fp16},
                               {.items = {{3, 4, 4}}, .type = fp64},
                               {.items = {{3, 3, 5}}, .heads = 3, .d = 7, .window = 2, .merge = 1},
                               {.items = {{2, 6, 3}}, .heads = 1, .d = 33, .merge = 3, .theta = 100},
                               {.items = {{2, 2, 2}}, .heads = 16, .d = 5}};
  for (const auto& spec : specs) {
    const vision v(spec);
    for (const auto& row : all(v)) {
      const auto at = place_by_division(v.spec(), row.row);
      expect_near_row(row, plain(v, row.row, row.head, at.first, at.tokens), 1e-12);
    }
  }
}

TEST(vit3d, check_values_of_the_contract) {
  const vision video({.items = {{10, 4, 6}}, .heads = 1, .d = 6});
  EXPECT_EQ(vit3d(inputs_of(video), {}, {}).layout.cu_segments, (std::vector<std::int32_t>{0, 96, 192, 240}));
  const vision both({.items = {{1, 4, 4}, {5, 2, 2}}, .heads = 1, .d = 6});
  EXPECT_EQ(vit3d(inputs_of(both), {}, {}).layout.cu_segments, (std::vector<std::int32_t>{0, 16, 32, 36}));
  for (const auto& row : all(both)) EXPECT_EQ(row.n, row.row < 32 ? 16 : 4);
}

// Window 0: one segment per item, in which t runs on.
TEST(vit3d, without_a_window_it_is_plain_attention_over_the_item) {
  const vision v({.items = {{6, 4, 4}}, .window = 0});
  for (const auto& row : all(v)) {
    EXPECT_EQ(row.n, 96);
    expect_near_row(row, plain(v, row.row, row.head, 0, 96), 1e-12);
  }
  // A window that is long enough is none.
  const vision wide({.items = {{6, 4, 4}}, .window = 6});
  expect_same_bits(all(v), all(wide));
}

TEST(vit3d, is_vit_attend_on_the_rotated_q_and_k) {
  const vision v({.items = {{6, 4, 2}, {1, 2, 2}}, .type = bf16});
  const auto rotated = rope3d({v.p(), v.q(), v.k(), v.grids(), 2}, v.all_rows());
  std::vector<double> q, k;
  for (const auto& r : rotated.rows) {
    q.insert(q.end(), r.q.begin(), r.q.end());
    k.insert(k.end(), r.k.begin(), r.k.end());
  }
  const auto& cu = rotated.layout.cu_segments;
  const vit_attend_inputs in{v.p(),
                             {q.data(), packed(fp64, v.q().desc.shape)},
                             {k.data(), packed(fp64, v.k().desc.shape)},
                             v.v(),
                             {cu.data(), packed(i32, {std::ssize(cu)})}};
  expect_same_bits(all(v), vit_attend(in, v.all_rows(), every_term));
}

TEST(vit3d, segments_have_nothing_to_do_with_each_other) {
  // Segments of the same size and the same values, since t restarts: an item of the window's length alone.
  const vision v({.items = {{8, 2, 4}}});
  auto in = inputs_of(v);
  std::vector<std::int64_t> second;
  for (std::int64_t i = 32; i < 64; ++i) second.push_back(i);
  const auto got = vit3d(in, second, every_term).rows;
  const std::vector<item> half{{4, 2, 4}};
  in.grids = {half.data(), packed(i32, {1, 3})};
  for (tensor_view* t : {&in.q, &in.k, &in.v})
    t->data = static_cast<const char*>(t->data) + t->offset(32) * size_bytes(t->desc.type);
  std::vector<std::int64_t> rows(32);
  for (std::size_t i = 0; i < 32; ++i) rows[i] = static_cast<std::int64_t>(i);
  auto want = vit3d(in, rows, every_term).rows;
  for (auto& row : want) row.row += 32;
  expect_same_bits(got, want);
}

TEST(vit3d, order_of_the_items_changes_no_bit) {
  const std::vector<item> items{{5, 2, 4}, {1, 4, 4}, {2, 4, 2}};
  const vision v({.items = items});
  const auto want = all(v);
  std::vector<std::size_t> order{0, 1, 2};
  while (std::ranges::next_permutation(order).found) {
    vision_spec spec;
    for (const std::size_t i : order) spec.items.push_back(items[i]);
    const vision other(spec);
    const auto got = all(other);
    std::size_t row = 0;
    for (const std::size_t i : order) {
      const auto tokens = [&](std::size_t of) {
        return static_cast<std::size_t>(items[of][0] * items[of][1] * items[of][2]);
      };
      std::size_t from = 0;
      for (std::size_t before = 0; before < i; ++before) from += tokens(before);
      for (std::size_t j = 0; j < tokens(i) * 2; ++j, ++row) {
        EXPECT_EQ(got[row].out, want[from * 2 + j].out);
        EXPECT_EQ(got[row].lse, want[from * 2 + j].lse);
        EXPECT_EQ(got[row].e1, want[from * 2 + j].e1);
      }
    }
  }
}

TEST(vit3d, wanted_rows_come_in_the_order_asked_for) {
  const vision v({.items = {{6, 2, 2}, {1, 2, 2}}});
  const auto whole = all(v);
  const std::vector<std::int64_t> rows{26, 0, 17, 3, 26};
  std::vector<attend_row> want;
  for (const auto row : rows)
    for (std::size_t h = 0; h < 2; ++h) want.push_back(whole[static_cast<std::size_t>(row) * 2 + h]);
  expect_same_bits(vit3d(inputs_of(v), rows, every_term).rows, want);
}

TEST(vit3d, threads_and_repeats_change_no_bit) {
  const vision v({.items = {{5, 8, 12}}, .type = bf16});
  omp_set_num_threads(1);
  const auto one = all(v);
  for (const int threads : {2, 3, 3}) {
    omp_set_num_threads(threads);
    expect_same_bits(all(v), one);
  }
  omp_set_num_threads(omp_get_num_procs());
}

TEST(vit3d, nothing_to_do_gives_no_rows) {
  const vision none({.items = {}});
  EXPECT_TRUE(all(none).empty());
}

TEST(vit3d, contradicting_shapes_and_rows_are_refused) {
  const vision v({.items = {{2, 4, 4}}});
  EXPECT_THROW(vit3d(inputs_of(v), std::vector<std::int64_t>{32}, every_term), suite_error);
  EXPECT_THROW(vit3d(inputs_of(v), std::vector<std::int64_t>{-1}, every_term), suite_error);
  const auto refused = [&](auto change) {
    auto in = inputs_of(v);
    change(in);
    EXPECT_THROW(vit3d(in, std::vector<std::int64_t>{0}, every_term), suite_error);
  };
  refused([](auto& in) { in.v.desc.shape[0] = 31; });
  refused([](auto& in) { in.q.desc.shape[2] = 40; });
  refused([](auto& in) { in.p.hkv = 1; });
  refused([](auto& in) { in.p.vit_window = -4; });
  refused([](auto& in) { in.merge = 3; });
  refused([](auto& in) { in.k.desc.strides[2] = 2; });
}

}  // namespace
}  // namespace msabench::reference

// SPDX-License-Identifier: Apache-2.0
#include "reference/rope3d.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "core/error.h"
#include "vision.h"

namespace msabench::reference {
namespace {

using testing::item;
using testing::place_by_division;
using testing::plain_rotation;
using testing::vision;
using testing::vision_spec;

using positions = std::vector<std::array<std::int32_t, 3>>;

vit_layout lay_out_items(const std::vector<item>& items, std::int64_t window, std::int64_t merge = 2) {
  return lay_out({items.data(), packed(i32, {std::ssize(items), 3})}, window, merge);
}

std::vector<std::int32_t> segments(const std::vector<item>& items, std::int64_t window) {
  return lay_out_items(items, window).cu_segments;
}

rope3d_inputs inputs_of(const vision& v) { return {v.p(), v.q(), v.k(), v.grids(), v.spec().merge}; }

TEST(rope3d, check_values_of_the_contract) {
  EXPECT_EQ(segments({{10, 4, 6}}, 4), (std::vector<std::int32_t>{0, 96, 192, 240}));
  EXPECT_EQ(segments({{1, 4, 4}, {5, 2, 2}}, 4), (std::vector<std::int32_t>{0, 16, 32, 36}));
}

TEST(rope3d, windows_1_4_and_unlimited) {
  EXPECT_EQ(segments({{5, 2, 4}}, 1), (std::vector<std::int32_t>{0, 8, 16, 24, 32, 40}));
  EXPECT_EQ(segments({{5, 2, 4}}, 4), (std::vector<std::int32_t>{0, 32, 40}));
  EXPECT_EQ(segments({{5, 2, 4}}, 0), (std::vector<std::int32_t>{0, 40}));
  EXPECT_EQ(segments({{4, 2, 2}, {8, 2, 2}}, 4), (std::vector<std::int32_t>{0, 16, 32, 48}));
  EXPECT_EQ(segments({{7, 2, 2}}, 3), (std::vector<std::int32_t>{0, 12, 24, 28}));
  EXPECT_EQ(segments({{3, 2, 2}, {1, 2, 2}}, 100), (std::vector<std::int32_t>{0, 12, 16}));
}

TEST(rope3d, no_items_have_no_segment) {
  EXPECT_EQ(segments({}, 4), (std::vector<std::int32_t>{0}));
  const vision none({.items = {}});
  const auto result = rope3d(inputs_of(none), {});
  EXPECT_TRUE(result.rows.empty());
  EXPECT_TRUE(result.layout.positions.empty());
}

TEST(rope3d, odd_frame_counts_repeat_the_last_frame) {
  const std::int64_t frames[] = {1, 2, 3, 4, 19, 20, 21}, patches[] = {1, 1, 2, 2, 10, 10, 11};
  for (std::size_t i = 0; i < std::size(frames); ++i) {
    EXPECT_EQ(temporal_patches(frames[i]), patches[i]) << frames[i];
    for (std::int64_t t = 0; t < patches[i]; ++t) {
      EXPECT_EQ(frame_of(t, 0, frames[i]), 2 * t);
      const bool last = t == patches[i] - 1;
      EXPECT_EQ(frame_of(t, 1, frames[i]), last && frames[i] % 2 == 1 ? 2 * t : 2 * t + 1);
    }
  }
  // 19 frames are ten temporal patches, hence segments of 4, 4 and 2.
  const auto t = static_cast<std::int32_t>(temporal_patches(19));
  EXPECT_EQ(segments({{t, 4, 6}}, 4), (std::vector<std::int32_t>{0, 96, 192, 240}));
  // An image is one temporal patch that holds it twice.
  EXPECT_EQ(frame_of(0, 1, 1), 0);
  EXPECT_THROW(temporal_patches(0), suite_error);
  EXPECT_THROW(frame_of(1, 0, 2), suite_error);
  EXPECT_THROW(frame_of(0, 2, 2), suite_error);
  EXPECT_EQ(temporal_patches(std::numeric_limits<std::int64_t>::max()), std::int64_t{1} << 62);
}

TEST(rope3d, merge_blocks_are_row_major_and_row_major_inside) {
  EXPECT_EQ(lay_out_items({{1, 4, 4}}, 4).positions, (positions{{0, 0, 0},
                                                                {0, 0, 1},
                                                                {0, 1, 0},
                                                                {0, 1, 1},
                                                                {0, 0, 2},
                                                                {0, 0, 3},
                                                                {0, 1, 2},
                                                                {0, 1, 3},
                                                                {0, 2, 0},
                                                                {0, 2, 1},
                                                                {0, 3, 0},
                                                                {0, 3, 1},
                                                                {0, 2, 2},
                                                                {0, 2, 3},
                                                                {0, 3, 2},
                                                                {0, 3, 3}}));
  EXPECT_EQ(lay_out_items({{1, 2, 3}}, 4, 1).positions,
            (positions{{0, 0, 0}, {0, 0, 1}, {0, 0, 2}, {0, 1, 0}, {0, 1, 1}, {0, 1, 2}}));
}

TEST(rope3d, t_restarts_in_every_segment_and_in_every_item) {
  const auto at = lay_out_items({{6, 2, 2}, {2, 2, 2}}, 4).positions;
  const std::int32_t t[] = {0, 1, 2, 3, 0, 1, 0, 1};
  ASSERT_EQ(at.size(), 32u);
  for (std::size_t i = 0; i < at.size(); ++i) EXPECT_EQ(at[i][0], t[i / 4]) << i;
}

TEST(rope3d, positions_are_those_of_division) {
  for (const std::int32_t window : {0, 1, 3, 4, 5})
    for (const std::int64_t merge : {1, 2, 3}) {
      const vision_spec spec{.items = {{7, 6, 12}, {1, 6, 6}, {4, 12, 6}}, .window = window, .merge = merge};
      const auto layout = lay_out_items(spec.items, window, merge);
      for (std::size_t i = 0; i < layout.positions.size(); ++i) {
        const auto at = place_by_division(spec, static_cast<std::int64_t>(i));
        for (std::size_t axis = 0; axis < 3; ++axis)
          ASSERT_EQ(layout.positions[i][axis], at.position[axis]) << window << " " << merge << " " << i;
        const auto segment = static_cast<std::size_t>(at.segment);
        ASSERT_EQ(layout.cu_segments[segment], at.first);
        ASSERT_EQ(layout.cu_segments[segment + 1], at.first + at.tokens);
      }
    }
}

TEST(rope3d, every_position_of_an_item_stands_there_once) {
  const std::vector<item> items{{3, 6, 4}};
  auto at = lay_out_items(items, 0).positions;
  std::ranges::sort(at);
  ASSERT_EQ(at.size(), 72u);
  for (std::int32_t i = 0; i < 72; ++i)
    EXPECT_EQ(at[static_cast<std::size_t>(i)], (std::array<std::int32_t, 3>{i / 24, i / 4 % 6, i % 4}));
}

TEST(rope3d, axes_of_a_head_of_80) {
  const axial_angles axes(80, 1e4);
  ASSERT_EQ(axes.pairs(), 39);
  std::vector<double> angles(39);
  axes.at({2, 30, 500}, angles);
  const double coordinates[] = {2, 30, 500};
  for (std::size_t i = 0; i < 39; ++i) {
    const double want = coordinates[i / 13] * std::pow(1e4, -2.0 * static_cast<double>(i % 13) / 26);
    EXPECT_NEAR(angles[i], want, 1e-15 * want) << i;
  }
}

// Every head dim: pairs per axis are floor(floor(d / 3) / 2).
TEST(rope3d, all_head_dims_follow_the_plain_formula) {
  for (const std::int32_t d : {1, 2, 5, 6, 7, 8, 11, 12, 16, 18, 32, 33, 64, 80, 81, 96, 128, 130}) {
    const vision v({.items = {{6, 4, 2}, {1, 2, 2}}, .heads = 3, .d = d, .type = fp64});
    const auto result = rope3d(inputs_of(v), v.all_rows());
    ASSERT_EQ(std::ssize(result.rows), v.tokens() * 3);
    const std::int64_t rotated = 6 * (d / 3 / 2);
    for (const auto& r : result.rows) {
      const auto q = plain_rotation(v.spec(), v.q(), r.row, r.head), k = plain_rotation(v.spec(), v.k(), r.row, r.head);
      for (std::int64_t c = 0; c < d; ++c) {
        const auto i = static_cast<std::size_t>(c);
        EXPECT_NEAR(r.q[i], static_cast<double>(q[i]), 1e-14) << d << " " << c;
        EXPECT_NEAR(r.k[i], static_cast<double>(k[i]), 1e-14) << d << " " << c;
        if (c >= rotated) {
          EXPECT_EQ(r.q[i], v.q().at(r.row, r.head, c));
          EXPECT_EQ(r.q_a[i], 0);
          EXPECT_EQ(r.phi[i], 0);
        }
      }
    }
  }
}

TEST(rope3d, types_windows_and_thetas_follow_the_plain_formula) {
  for (const dtype type : {bf16, fp16, fp32, fp64})
    for (const std::int32_t window : {0, 1, 4})
      for (const double theta : {0.0, 10.0, 5e6}) {
        const vision v({.items = {{5, 2, 4}}, .d = 24, .window = window, .theta = theta, .type = type});
        for (const auto& r : rope3d(inputs_of(v), v.all_rows()).rows) {
          const auto k = plain_rotation(v.spec(), v.k(), r.row, r.head);
          for (std::size_t c = 0; c < k.size(); ++c) EXPECT_NEAR(r.k[c], static_cast<double>(k[c]), 1e-14);
        }
      }
}

TEST(rope3d, gauges_are_amplitude_and_angle_of_the_pair) {
  const vision v({.items = {{2, 4, 4}}});
  for (const auto& r : rope3d(inputs_of(v), v.all_rows()).rows) {
    const auto at = place_by_division(v.spec(), r.row).position;
    for (std::size_t i = 0; i < 39; ++i) {
      const double low = v.q().at(r.row, r.head, i), high = v.q().at(r.row, r.head, i + 39);
      EXPECT_NEAR(r.q_a[i], std::hypot(low, high), 1e-15);
      EXPECT_EQ(r.q_a[i], r.q_a[i + 39]);
      EXPECT_NEAR(r.k_a[i], std::hypot(r.k[i], r.k[i + 39]), 1e-14);
      EXPECT_EQ(r.phi[i], r.phi[i + 39]);
      EXPECT_NEAR(r.phi[i], static_cast<double>(at[i / 13]) * std::pow(1e4, -static_cast<double>(i % 13) / 13), 1e-14);
    }
    for (const std::size_t rest : {78u, 79u}) EXPECT_EQ(r.q_a[rest] + r.k_a[rest] + r.phi[rest], 0);
  }
}

// What the gauges are for: a rotation in single precision that computes its angles stays inside the bound that is made
// of them, and one that drops a binary digit of the angle does not.
TEST(rope3d, single_precision_stays_within_the_bound_and_a_coarse_angle_does_not) {
  const vision v({.items = {{1, 64, 64}}, .heads = 1});
  constexpr double u32 = 0x1p-24;
  const auto bound = [](double y, double a, double phi) {
    return u32 * std::abs(y) + 1.02 * (8 * u32 + 4 * u32 * std::abs(phi) + 0x1p-22) * a;
  };
  double fine = 0, coarse = 0;
  for (const auto& r : rope3d(inputs_of(v), v.all_rows()).rows)
    for (std::size_t i = 0; i < 39; ++i) {
      const auto low = static_cast<float>(v.q().at(r.row, 0, i)), high = static_cast<float>(v.q().at(r.row, 0, i + 39));
      const auto at = static_cast<float>(place_by_division(v.spec(), r.row).position[i / 13]);
      const float angle = at * std::pow(1e4f, -2.0f * static_cast<float>(i % 13) / 26.0f);
      const auto error = [&](float phi) {
        return std::abs(static_cast<double>(low * std::cos(phi) - high * std::sin(phi)) - r.q[i]) /
               bound(r.q[i], r.q_a[i], r.phi[i]);
      };
      fine = std::max(fine, error(angle));
      coarse = std::max(coarse, error(static_cast<float>(round_to(angle, fp16))));
    }
  EXPECT_LE(fine, 1);
  EXPECT_GT(fine, 0.01);
  EXPECT_GT(coarse, 100);
}

TEST(rope3d, products_depend_on_the_distance_alone) {
  // The same q and k in every token: their product between two tokens depends on the difference of their positions.
  vision_spec spec{.items = {{4, 6, 6}}, .heads = 1, .d = 36, .type = fp64};
  const vision v(spec);
  const auto rows = rope3d(inputs_of(v), v.all_rows()).rows;
  const axial_angles axes(36, 1e4);
  std::vector<double> angles(18);
  const auto rotated = [&](const tensor_view& x, std::array<std::int32_t, 3> position) {
    std::vector<double> y(36);
    for (std::size_t c = 0; c < 36; ++c) y[c] = x.at(0, 0, c);
    axes.at(position, angles);
    rotate(angles, y);
    return y;
  };
  const auto product = [&](std::array<std::int32_t, 3> a, std::array<std::int32_t, 3> b) {
    const auto q = rotated(v.q(), a), k = rotated(v.k(), b);
    double sum = 0;
    for (std::size_t c = 0; c < 36; ++c) sum += q[c] * k[c];
    return sum;
  };
  EXPECT_NEAR(product({0, 1, 2}, {1, 1, 0}), product({2, 5, 5}, {3, 5, 3}), 1e-13);
  EXPECT_GT(std::abs(product({0, 1, 2}, {1, 1, 0}) - product({1, 1, 0}, {0, 1, 2})), 1e-3);
  // The first token stands at (0, 0, 0) and is not moved.
  for (std::size_t c = 0; c < 36; ++c) EXPECT_EQ(rows[0].q[c], v.q().at(0, 0, c));
}

void expect_same(const std::vector<rope3d_row>& a, const std::vector<rope3d_row>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].row, b[i].row);
    EXPECT_EQ(a[i].head, b[i].head);
    for (auto field : {&rope3d_row::q, &rope3d_row::k, &rope3d_row::q_a, &rope3d_row::k_a, &rope3d_row::phi})
      EXPECT_EQ(a[i].*field, b[i].*field) << i;
  }
}

TEST(rope3d, threads_and_repeats_change_no_bit) {
  const vision v({.items = {{3, 16, 16}}, .type = bf16});
  omp_set_num_threads(1);
  const auto one = rope3d(inputs_of(v), v.all_rows()).rows;
  for (const int threads : {2, 3, 3}) {
    omp_set_num_threads(threads);
    expect_same(rope3d(inputs_of(v), v.all_rows()).rows, one);
  }
  omp_set_num_threads(omp_get_num_procs());
}

TEST(rope3d, wanted_rows_come_in_the_order_asked_for) {
  const vision v({.items = {{3, 2, 2}}});
  const auto all = rope3d(inputs_of(v), v.all_rows()).rows;
  const auto some = rope3d(inputs_of(v), std::vector<std::int64_t>{7, 0, 7}).rows;
  expect_same(some, {all[14], all[15], all[0], all[1], all[14], all[15]});
}

TEST(rope3d, strided_views_and_rows_past_the_last_token_are_not_read) {
  const vision v({.items = {{2, 2, 2}}});
  std::vector<float> wide(10 * 200, std::numeric_limits<float>::quiet_NaN());
  for (std::size_t i = 0; i < 8; ++i)
    for (std::size_t h = 0; h < 2; ++h)
      for (std::size_t c = 0; c < 80; ++c) wide[i * 200 + h * 100 + c] = static_cast<float>(v.q().at(i, h, c));
  auto in = inputs_of(v);
  in.q.data = wide.data();
  in.q.desc.shape = {10, 2, 80};
  in.q.desc.strides = {200, 100, 1};
  expect_same(rope3d(in, v.all_rows()).rows, rope3d(inputs_of(v), v.all_rows()).rows);
}

TEST(rope3d, impossible_grids_are_refused) {
  constexpr std::int32_t huge = std::numeric_limits<std::int32_t>::max();
  for (const item& bad : {item{0, 2, 2},
                          {1, 0, 2},
                          {1, 2, 0},
                          {-1, 2, 2},
                          {1, 3, 2},
                          {1, 2, 5},
                          {1, -2, 2},
                          {huge, 2, 2},
                          {1, 65536, 65536},
                          {huge, huge - 1, huge - 1},
                          {1, huge - 1, 2}})
    EXPECT_THROW(lay_out_items({bad}, 4), suite_error) << bad[0] << " " << bad[1] << " " << bad[2];
  EXPECT_THROW(lay_out_items({{1, 2, 2}}, -1), suite_error);
  EXPECT_THROW(lay_out_items({{1, 2, 2}}, 4, 0), suite_error);
  EXPECT_THROW(lay_out({nullptr, packed(i32, {2, 2})}, 4), suite_error);
  EXPECT_THROW(lay_out({nullptr, packed(fp32, {0, 3})}, 4), suite_error);
}

TEST(rope3d, contradicting_shapes_and_rows_are_refused) {
  const vision v({.items = {{2, 2, 2}}});
  EXPECT_THROW(rope3d(inputs_of(v), std::vector<std::int64_t>{8}), suite_error);
  EXPECT_THROW(rope3d(inputs_of(v), std::vector<std::int64_t>{-1}), suite_error);
  const auto refused = [&](auto change) {
    auto in = inputs_of(v);
    change(in);
    EXPECT_THROW(rope3d(in, std::vector<std::int64_t>{0}), suite_error);
  };
  refused([](auto& in) { in.q.desc.shape[0] = 7; });
  refused([](auto& in) { in.k.desc.shape[1] = 1; });
  refused([](auto& in) { in.k.desc.shape[2] = 40; });
  refused([](auto& in) { in.q.desc.strides[2] = 2; });
  refused([](auto& in) { in.q.desc.shape = {8, 160}; });
  refused([](auto& in) { in.p.d = 0; });
}

}  // namespace
}  // namespace msabench::reference

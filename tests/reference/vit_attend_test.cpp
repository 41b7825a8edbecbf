// SPDX-License-Identifier: Apache-2.0
#include "reference/vit_attend.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <limits>

#include "batch.h"
#include "core/error.h"
#include "vision.h"

namespace msabench::reference {
namespace {

using testing::expect_near_row;
using testing::expect_same_bits;
using testing::plain_attention;
using testing::vision;

constexpr score_error every_term{1e-4, 2e-4, 3e-5, 1e-6, 1e-6, 2e-6, 3e-8, 1e-9};

// A vision batch whose tokens are cut wherever a test wants them to be.
struct cut {
  cut(const vision& of, std::vector<std::int32_t> boundaries) : v(of), cu(std::move(boundaries)) {}
  vit_attend_inputs inputs() const { return {v.p(), v.q(), v.k(), v.v(), {cu.data(), packed(i32, {std::ssize(cu)})}}; }
  std::vector<attend_row> all() const { return vit_attend(inputs(), rows(), every_term); }
  std::vector<std::int64_t> rows() const {
    std::vector<std::int64_t> rows;
    for (std::int64_t i = 0; i < cu.back(); ++i) rows.push_back(i);
    return rows;
  }

  const vision& v;
  std::vector<std::int32_t> cu;
};

attend_row plain(const cut& of, std::int64_t row, std::int64_t head, double scale) {
  std::size_t segment = 0;
  while (of.cu[segment + 1] <= row) ++segment;
  const auto line = [&](const tensor_view& x, std::int64_t token) {
    std::vector<long double> values;
    for (std::int64_t c = 0; c < of.v.spec().d; ++c) values.push_back(x.at(token, head, c));
    return values;
  };
  std::vector<std::vector<long double>> k, v;
  for (std::int64_t j = of.cu[segment]; j < of.cu[segment + 1]; ++j) {
    k.push_back(line(of.v.k(), j));
    v.push_back(line(of.v.v(), j));
  }
  return plain_attention(line(of.v.q(), row), k, v, scale, every_term);
}

void expect_plain(const cut& of, double scale) {
  for (const auto& row : of.all()) expect_near_row(row, plain(of, row.row, row.head, scale), 1e-12);
}

TEST(vit_attend, segments_follow_the_plain_formulas) {
  for (const dtype type : {bf16, fp16, fp32, fp64}) {
    const vision v({.items = {{5, 4, 6}}, .type = type});
    expect_plain(cut(v, {0, 96, 120}), 1 / std::sqrt(80.0));
  }
}

TEST(vit_attend, odd_shapes_follow_the_plain_formulas) {
  for (const auto& [heads, d] : {std::pair{1, 1}, {3, 7}, {16, 80}, {2, 130}}) {
    const vision v({.items = {{3, 2, 8}}, .heads = heads, .d = d});
    expect_plain(cut(v, {0, 1, 18, 48}), 1 / std::sqrt(static_cast<double>(d)));
  }
}

TEST(vit_attend, segments_of_more_than_a_tile_follow_the_plain_formulas) {
  const vision v({.items = {{4, 10, 10}}, .heads = 1, .d = 16, .query_size = 6});
  expect_plain(cut(v, {0, 129, 400}), 0.25);
}

TEST(vit_attend, scale_of_the_problem_counts) {
  const vision v({.items = {{2, 4, 4}}, .d = 12});
  const cut whole(v, {0, 32});
  auto in = whole.inputs();
  in.p.softmax_scale = 0.4;
  for (const auto& row : vit_attend(in, whole.rows(), every_term))
    expect_near_row(row, plain(whole, row.row, row.head, 0.4), 1e-12);
}

TEST(vit_attend, every_token_reads_its_whole_segment_and_nothing_else) {
  const vision v({.items = {{4, 4, 4}}});
  const cut of(v, {0, 16, 48, 64});
  for (const auto& row : of.all()) EXPECT_EQ(row.n, row.row >= 16 && row.row < 48 ? 32 : 16);
}

TEST(vit_attend, a_segment_alone_gives_the_same_bits) {
  const vision v({.items = {{4, 4, 4}}, .type = bf16});
  const cut of(v, {0, 10, 40, 64});
  const auto all = of.all();
  for (std::size_t s = 0; s + 1 < of.cu.size(); ++s) {
    const std::int32_t first = of.cu[s], cu[] = {0, of.cu[s + 1] - first};
    auto in = of.inputs();
    for (tensor_view* t : {&in.q, &in.k, &in.v})
      t->data = static_cast<const char*>(t->data) + t->offset(first) * size_bytes(t->desc.type);
    in.cu_segments = {cu, packed(i32, {2})};
    std::vector<std::int64_t> rows;
    for (std::int64_t i = 0; i < cu[1]; ++i) rows.push_back(i);
    auto alone = vit_attend(in, rows, every_term);
    for (auto& row : alone) row.row += first;
    expect_same_bits(alone, {all.begin() + first * 2, all.begin() + of.cu[s + 1] * 2});
  }
}

TEST(vit_attend, values_of_other_segments_are_not_read) {
  const vision v({.items = {{2, 4, 4}}});
  std::vector<float> poisoned(32 * 160, std::numeric_limits<float>::quiet_NaN());
  for (std::size_t i = 0; i < 16 * 160; ++i) poisoned[i] = static_cast<float>(v.v().at(0, 0, i));
  const cut of(v, {0, 16, 32});
  auto in = of.inputs();
  in.v.data = poisoned.data();
  std::vector<std::int64_t> first(16);
  for (std::size_t i = 0; i < 16; ++i) first[i] = static_cast<std::int64_t>(i);
  expect_same_bits(vit_attend(in, first, every_term), vit_attend(of.inputs(), first, every_term));
}

TEST(vit_attend, a_segment_of_one_token_returns_its_value_exactly) {
  const vision v({.items = {{1, 2, 2}}, .query_size = 30});
  for (const auto& row : cut(v, {0, 1, 2, 3, 4}).all()) {
    EXPECT_EQ(row.n, 1);
    EXPECT_EQ(row.lse, row.m);
    for (std::size_t c = 0; c < 80; ++c) EXPECT_EQ(row.out[c], v.v().at(row.row, row.head, c));
  }
}

TEST(vit_attend, empty_segments_and_no_segments_are_fine) {
  const vision v({.items = {{1, 4, 4}}});
  expect_same_bits(cut(v, {0, 0, 8, 8, 16, 16}).all(), cut(v, {0, 8, 16}).all());
  EXPECT_TRUE(cut(v, {0}).all().empty());
}

TEST(vit_attend, order_of_keys_within_a_segment_is_only_rounding) {
  // Two tokens exchanged: each result moves with its token.
  const vision v({.items = {{1, 4, 4}}, .type = fp64});
  std::vector<double> swapped[3];
  const cut of(v, {0, 16});
  auto in = of.inputs();
  tensor_view* const views[] = {&in.q, &in.k, &in.v};
  for (std::size_t t = 0; t < 3; ++t) {
    for (std::size_t i = 0; i < 16 * 160; ++i) {
      const std::size_t token = i / 160, from = token == 3 ? 9 : token == 9 ? 3 : token;
      swapped[t].push_back(views[t]->at(from, 0, i % 160));
    }
    views[t]->data = swapped[t].data();
  }
  const auto a = of.all(), b = vit_attend(in, of.rows(), every_term);
  for (std::size_t i = 0; i < a.size(); ++i) {
    const std::size_t token = i / 2, from = token == 3 ? 9 : token == 9 ? 3 : token;
    EXPECT_NEAR(b[i].lse, a[from * 2 + i % 2].lse, 1e-14);
    for (std::size_t c = 0; c < 80; ++c) EXPECT_NEAR(b[i].out[c], a[from * 2 + i % 2].out[c], 1e-14);
  }
}

TEST(vit_attend, threads_and_repeats_change_no_bit) {
  const vision v({.items = {{4, 12, 12}}, .type = bf16});
  const cut of(v, {0, 500, 576});
  omp_set_num_threads(1);
  const auto one = of.all();
  for (const int threads : {2, 3, 3}) {
    omp_set_num_threads(threads);
    expect_same_bits(of.all(), one);
  }
  omp_set_num_threads(omp_get_num_procs());
}

TEST(vit_attend, contradicting_shapes_and_rows_are_refused) {
  const vision v({.items = {{2, 4, 4}}});
  const cut of(v, {0, 16, 32});
  EXPECT_THROW(vit_attend(of.inputs(), std::vector<std::int64_t>{32}, every_term), suite_error);
  EXPECT_THROW(vit_attend(of.inputs(), std::vector<std::int64_t>{-1}, every_term), suite_error);
  const auto refused = [&](auto change) {
    auto in = of.inputs();
    change(in);
    EXPECT_THROW(vit_attend(in, std::vector<std::int64_t>{0}, every_term), suite_error);
  };
  refused([](auto& in) { in.q.desc.shape[0] = 31; });
  refused([](auto& in) { in.k.desc.shape[0] = 31; });
  refused([](auto& in) { in.v.desc.shape[1] = 1; });
  refused([](auto& in) { in.p.hkv = 1; });
  refused([](auto& in) { in.p.layout = page_layout::paged, in.p.page_size = 16; });
  refused([](auto& in) { in.cu_segments.desc.shape = {0}; });
  const std::vector<std::int32_t> falling{0, 16, 8}, late{4, 16};
  refused([&](auto& in) { in.cu_segments = {falling.data(), packed(i32, {3})}; });
  refused([&](auto& in) { in.cu_segments = {late.data(), packed(i32, {2})}; });
}

}  // namespace
}  // namespace msabench::reference

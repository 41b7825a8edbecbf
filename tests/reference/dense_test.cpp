// SPDX-License-Identifier: Apache-2.0
#include "reference/dense.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "batch.h"
#include "core/error.h"
#include "reordered.h"

namespace msabench::reference {
namespace {

using testing::batch;
using testing::batch_spec;
using testing::expect_close;
using testing::expect_same_bits;
using testing::plain_attend;

constexpr double inf = std::numeric_limits<double>::infinity();

// Every term distinct and visible.
constexpr score_error every_term{1e-3, 2e-4, 1e-5, 3e-5, 1e-6, 2e-6, 3e-6, 4e-6};

// Ids for all visible blocks, so that plain_attend() takes every visible key too.
batch_spec all_blocks(batch_spec spec) {
  std::int64_t longest = 0;
  for (const auto& [q_len, kv_len] : spec.sequences) longest = std::max(longest, kv_len);
  spec.topk = static_cast<std::int32_t>(std::max<std::int64_t>(1, (longest + spec.block - 1) / spec.block));
  return spec;
}

batch_spec ragged() {
  batch_spec spec;
  spec.sequences = {{0, 0}, {3, 3}, {1, 0}, {5, 149}, {0, 40}, {2, 128}, {4, 2}, {1, 1}, {0, 0}};
  return all_blocks(spec);
}

dense_inputs inputs_of(const batch& b) {
  const attend_inputs& in = b.inputs();
  dense_inputs result{in.p, in.q, in.k, in.v, in.cu_seqlens_q, in.kv_lens, in.cu_seqlens_kv, in.block_table};
  result.p.operation = op::dense;
  result.p.block = result.p.topk = 0;
  return result;
}

std::vector<attend_row> dense_all(const batch& b, const score_error& err = every_term) {
  return dense(inputs_of(b), b.all_rows(), err);
}

void expect_plain(const batch& b) {
  const auto rows = dense_all(b);
  ASSERT_EQ(rows.size(), static_cast<std::size_t>(b.rows() * b.spec().hq));
  for (const auto& row : rows) expect_close(row, plain_attend(b, row.row, row.head, every_term), 1e-12);
}

// What the judge of attention uses for both operators.
TEST(dense, attend_without_ids_gives_the_same_bits) {
  for (const auto layout : {page_layout::contiguous, page_layout::paged}) {
    batch_spec spec = ragged();
    spec.layout = layout;
    spec.page_size = layout == page_layout::paged ? 24 : 0;
    const batch b(spec);
    attend_inputs in = b.inputs();
    in.ids = {};
    in.p.topk = 0;
    expect_same_bits(attend(in, b.all_rows(), every_term), dense_all(b));
    const auto with_ids = attended_keys(b.inputs(), 5, 1), without = attended_keys(in, 5, 1);
    ASSERT_EQ(without.size(), with_ids.size());
    for (std::size_t j = 0; j < without.size(); ++j) {
      EXPECT_EQ(without[j].key, static_cast<std::int64_t>(j));
      EXPECT_EQ(without[j].block, with_ids[j].block);
      EXPECT_EQ(without[j].weight, with_ids[j].weight);
    }
  }
}

struct storage_case {
  const char* name;
  dtype type;
  page_layout layout;
  std::int32_t page_size;
};
void PrintTo(const storage_case& c, std::ostream* out) { *out << c.name; }

class dense_storage : public ::testing::TestWithParam<storage_case> {};

TEST_P(dense_storage, results_and_gauges_are_those_of_the_plain_formulas) {
  batch_spec spec = ragged();
  spec.type = GetParam().type;
  spec.layout = GetParam().layout;
  spec.page_size = GetParam().page_size;
  spec.page_order = 77;
  expect_plain(batch(spec));
}

INSTANTIATE_TEST_SUITE_P(, dense_storage,
                         ::testing::Values(storage_case{"bf16", bf16, page_layout::contiguous, 0},
                                           storage_case{"fp16", fp16, page_layout::contiguous, 0},
                                           storage_case{"fp32", fp32, page_layout::contiguous, 0},
                                           storage_case{"fp64", fp64, page_layout::contiguous, 0},
                                           storage_case{"e4m3", e4m3, page_layout::contiguous, 0},
                                           storage_case{"bf16_paged", bf16, page_layout::paged, 0},
                                           storage_case{"fp32_paged_pages_of_24", fp32, page_layout::paged, 24},
                                           storage_case{"slot_addressed", fp16, page_layout::paged, 1},
                                           storage_case{"e4m3_fused", e4m3, page_layout::fused, 0}),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST(dense, head_shapes_and_scales_follow_the_plain_formulas) {
  struct shape {
    std::int32_t hq, hkv, d;
    double scale;
  };
  for (const shape& s : {shape{1, 1, 1, 0}, shape{6, 3, 20, 0.3}, shape{16, 1, 80, 0}, shape{3, 3, 128, 0.05}}) {
    batch_spec spec;
    spec.sequences = {{4, 301}, {2, 17}};
    spec.hq = s.hq, spec.hkv = s.hkv, spec.d = s.d, spec.softmax_scale = s.scale;
    expect_plain(batch(all_blocks(spec)));
  }
}

// The borders of a tile and of the parts in which long rows are summed; the last two lengths are shared by threads.
TEST(dense, lengths_around_borders_follow_the_plain_formulas) {
  for (const std::int64_t n : {127, 128, 129, 4095, 4096, 4097, 8193, 32768, 32769, 40001}) {
    batch_spec spec;
    spec.sequences = {{1, n}};
    spec.block = 128, spec.hq = 2, spec.hkv = 1, spec.d = 8, spec.offset = 0.25;
    expect_plain(batch(all_blocks(spec)));
  }
}

TEST(dense, equals_attend_with_all_blocks) {
  for (const std::int64_t n : {300, 33000}) {
    batch_spec spec = ragged();
    spec.type = bf16, spec.block = 128;
    spec.sequences.emplace_back(2, n);
    const batch b(all_blocks(spec));
    expect_same_bits(dense_all(b), attend(b.inputs(), b.all_rows(), every_term));
  }
}

TEST(dense, empty_rows_are_zero_and_minus_infinity) {
  std::size_t empty = 0;
  for (const auto& row : dense_all(batch(ragged()))) {
    // Row 3 has N_b = 0; rows 11 and 12 stand before their sequence's first position.
    const bool is_empty = row.row == 3 || row.row == 11 || row.row == 12;
    EXPECT_EQ(row.n == 0, is_empty) << row.row;
    if (!is_empty) continue;
    ++empty;
    EXPECT_EQ(row.lse, -inf);
    EXPECT_EQ(row.eta_bar, 0);
    EXPECT_EQ(row.n_eff, 0);
    for (const auto* channels : {&row.out, &row.a, &row.dev, &row.q2, &row.e1, &row.e2, &row.x})
      EXPECT_EQ(*channels, std::vector<double>(16, 0.0));
  }
  EXPECT_EQ(empty, 3u * 4);
}

TEST(dense, rows_of_a_single_key_return_its_value_exactly) {
  batch_spec spec;
  spec.sequences = {{1, 1}, {3, 3}};
  spec.query_size = 30;
  const batch b(all_blocks(spec));
  for (const auto& row : dense(inputs_of(b), std::vector<std::int64_t>{0, 1}, every_term)) {
    EXPECT_EQ(row.n, 1);
    EXPECT_EQ(row.n_eff, 1);
    EXPECT_EQ(row.lse, row.m);
    for (std::int64_t c = 0; c < b.spec().d; ++c)
      EXPECT_EQ(row.out[static_cast<std::size_t>(c)], b.value(row.row, 0, row.head / 2, c));
  }
}

TEST(dense, zero_queries_average_all_visible_values) {
  batch_spec spec;
  spec.sequences = {{1, 6000}};
  spec.query_size = 0, spec.block = 128;
  batch b(all_blocks(spec));
  for (std::int64_t j = 0; j < 6000; ++j)
    for (std::int64_t r = 0; r < 2; ++r)
      for (std::int64_t c = 0; c < 16; ++c) b.set_value(0, j, r, c, j % 16 == c ? 1 : 0);
  for (const auto& row : dense_all(b)) {
    EXPECT_NEAR(row.lse, std::log(6000.0), 1e-14);
    EXPECT_NEAR(row.n_eff, 6000, 6000 * 1e-14);
    for (const double o : row.out) EXPECT_NEAR(o, 0.0625, 1e-16);
  }
}

TEST(dense, chunks_and_single_tokens_equal_one_shot) {
  batch_spec spec;
  spec.sequences = {{150, 150}};
  const batch whole(all_blocks(spec));
  const auto want = dense_all(whole);
  for (const std::int32_t size : {1, 37, 64}) {
    std::vector<attend_row> got;
    for (std::int32_t first = 0; first < 150; first += size) {
      const testing::chunk_of chunk(inputs_of(whole), first, std::min(150, first + size));
      for (auto& row : dense(chunk.inputs(), chunk.rows(), every_term)) got.push_back(std::move(row));
    }
    expect_same_bits(got, want);
  }
}

TEST(dense, page_permutation_changes_no_bit) {
  batch_spec spec = ragged();
  spec.type = bf16;
  const batch contiguous(spec);
  for (const auto layout : {page_layout::paged, page_layout::fused})
    for (const std::uint64_t order : {0, 1, 2}) {
      spec.layout = layout;
      spec.page_order = order;
      expect_same_bits(dense_all(batch(spec)), dense_all(contiguous));
    }
}

TEST(dense, batch_order_changes_no_bit) {
  batch_spec spec = ragged();
  spec.layout = page_layout::paged;
  const batch b(spec);
  const auto all = dense_all(b);
  const testing::reversed_sequences reversed(inputs_of(b));
  std::vector<attend_row> want;
  for (std::int64_t row = 0; row < b.rows(); ++row)
    for (std::int64_t h = 0; h < 4; ++h) want.push_back(all[static_cast<std::size_t>(reversed.old_row(row) * 4 + h)]);
  expect_same_bits(dense(reversed.inputs(), b.all_rows(), every_term), want);
}

TEST(dense, group_permutation_changes_no_bit) {
  batch_spec spec = ragged();
  spec.hq = 6, spec.hkv = 3;
  const batch b(spec);
  const auto all = dense_all(b);
  std::vector<attend_row> want;
  for (std::int64_t row = 0; row < b.rows(); ++row)
    for (std::int64_t h = 0; h < 6; ++h) want.push_back(all[static_cast<std::size_t>(row * 6 + 5 - h)]);
  expect_same_bits(dense(testing::with_reversed_groups(inputs_of(b)), b.all_rows(), every_term), want);
}

TEST(dense, threads_and_repeats_change_no_bit) {
  struct shape {
    std::int64_t n;
    std::int32_t d;
  };
  // Spread over rows, and within a row; both beyond the work below which one thread does it all.
  for (const auto& [n, d] : {shape{200, 128}, shape{33000, 16}}) {
    batch_spec spec = ragged();
    spec.block = 128, spec.d = d, spec.hq = 8;
    spec.sequences.emplace_back(n < 1000 ? 3 : 1, n);
    const batch b(all_blocks(spec));
    omp_set_num_threads(1);
    const auto one = dense_all(b);
    for (const int threads : {1, 2, 3, 3}) {
      omp_set_num_threads(threads);
      expect_same_bits(dense_all(b), one);
    }
  }
  omp_set_num_threads(omp_get_num_procs());
}

TEST(dense, nothing_but_visible_keys_is_read) {
  // batch stores NaN past every sequence; here also in the last token, which only the last row sees.
  batch_spec spec;
  spec.sequences = {{2, 150}};
  spec.layout = page_layout::paged;
  batch b(all_blocks(spec));
  for (std::int64_t c = 0; c < 16; ++c) b.set_value(0, 149, 1, c, std::numeric_limits<double>::quiet_NaN());
  for (const auto& row : dense_all(b)) {
    const bool sees_nan = row.row == 1 && row.head >= 2;
    EXPECT_EQ(std::ranges::all_of(row.x, [](double x) { return std::isfinite(x); }), !sees_nan) << row.row;
  }
}

TEST(dense, wanted_rows_come_in_the_order_asked_for) {
  const batch b(ragged());
  const auto all = dense_all(b);
  const std::vector<std::int64_t> rows{7, 0, 7, 12};
  std::vector<attend_row> want;
  for (const auto row : rows)
    for (std::int64_t h = 0; h < 4; ++h) want.push_back(all[static_cast<std::size_t>(row * 4 + h)]);
  expect_same_bits(dense(inputs_of(b), rows, every_term), want);
  EXPECT_TRUE(dense(inputs_of(b), std::vector<std::int64_t>{}, every_term).empty());
}

TEST(dense, contradicting_shapes_and_rows_are_refused) {
  const batch b(ragged());
  EXPECT_THROW(dense(inputs_of(b), std::vector<std::int64_t>{16}, every_term), suite_error);
  EXPECT_THROW(dense(inputs_of(b), std::vector<std::int64_t>{-1}, every_term), suite_error);
  const auto refused = [&](auto change) {
    auto in = inputs_of(b);
    change(in);
    EXPECT_THROW(dense(in, b.all_rows(), every_term), suite_error);
  };
  refused([](auto& in) { in.q.desc.shape[1] = 5; });
  refused([](auto& in) { in.v.desc.shape[2] = 8; });
  refused([](auto& in) { in.k.desc.strides[2] = 2; });
  refused([](auto& in) { in.p.layout = page_layout::paged, in.p.page_size = 16; });
  refused([](auto& in) { in.p.hkv = 3; });
  refused([](auto& in) { in.p.hkv = 0; });
}

TEST(dense, empty_batches_give_no_rows) {
  batch_spec spec;
  EXPECT_TRUE(dense_all(batch(spec)).empty());
  spec.sequences = {{0, 0}, {0, 30}};
  EXPECT_TRUE(dense_all(batch(spec)).empty());
}

}  // namespace
}  // namespace msabench::reference

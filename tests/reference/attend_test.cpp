// SPDX-License-Identifier: Apache-2.0
#include "reference/attend.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>

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

std::vector<attend_row> attend_all(const batch& b, const score_error& err = every_term) {
  return attend(b.inputs(), b.all_rows(), err);
}

void expect_plain(const batch& b, const score_error& err = every_term) {
  const auto rows = attend_all(b, err);
  ASSERT_EQ(rows.size(), static_cast<std::size_t>(b.rows() * b.spec().hq));
  for (const auto& row : rows) expect_close(row, plain_attend(b, row.row, row.head, err), 1e-12);
}

batch_spec ragged() {
  batch_spec spec;
  spec.sequences = {{0, 0}, {3, 3}, {1, 0}, {5, 149}, {0, 40}, {2, 128}, {4, 2}, {1, 1}, {0, 0}};
  return spec;
}

TEST(attend, one_head_alone_has_the_same_bits) {
  const batch b(ragged());
  const auto all = attend_all(b);
  for (const auto& want : all) expect_same_bits({attend_head(b.inputs(), want.row, want.head, every_term)}, {want});
}

struct storage_case {
  const char* name;
  dtype type;
  page_layout layout;
  std::int32_t page_size;
};
void PrintTo(const storage_case& c, std::ostream* out) { *out << c.name; }

class attend_storage : public ::testing::TestWithParam<storage_case> {};

TEST_P(attend_storage, results_and_gauges_are_those_of_the_plain_formulas) {
  batch_spec spec = ragged();
  spec.type = GetParam().type;
  spec.layout = GetParam().layout;
  spec.page_size = GetParam().page_size;
  spec.page_order = 77;
  expect_plain(batch(spec));
}

INSTANTIATE_TEST_SUITE_P(, attend_storage,
                         ::testing::Values(storage_case{"bf16", bf16, page_layout::contiguous, 0},
                                           storage_case{"fp16", fp16, page_layout::contiguous, 0},
                                           storage_case{"fp32", fp32, page_layout::contiguous, 0},
                                           storage_case{"fp64", fp64, page_layout::contiguous, 0},
                                           storage_case{"e4m3", e4m3, page_layout::contiguous, 0},
                                           storage_case{"bf16_paged", bf16, page_layout::paged, 0},
                                           storage_case{"fp32_paged_page_is_not_block", fp32, page_layout::paged, 24},
                                           storage_case{"slot_addressed", fp16, page_layout::paged, 1},
                                           storage_case{"e4m3_fused", e4m3, page_layout::fused, 0},
                                           storage_case{"bf16_fused_small_pages", bf16, page_layout::fused, 8}),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST(attend, odd_shapes_follow_the_plain_formulas) {
  struct shape {
    std::int32_t hq, hkv, d, block, topk;
  };
  for (const shape& s : {shape{1, 1, 1, 1, 1}, shape{6, 3, 20, 32, 2}, shape{16, 1, 80, 64, 3},
                         shape{3, 3, 128, 128, 16}, shape{4, 1, 7, 5, 9}}) {
    batch_spec spec;
    spec.sequences = {{4, 301}, {2, 17}};
    spec.hq = s.hq, spec.hkv = s.hkv, spec.d = s.d, spec.block = s.block, spec.topk = s.topk;
    expect_plain(batch(spec));
  }
}

TEST(attend, forced_block_settings_follow_the_plain_formulas) {
  for (const std::int32_t local : {0, 1, 3})
    for (const std::int32_t init : {0, 1, 2}) {
      batch_spec spec = ragged();
      spec.topk = 5, spec.local_blocks = local, spec.init_blocks = init;
      expect_plain(batch(spec));
    }
}

TEST(attend, scales_peaks_and_offsets_follow_the_plain_formulas) {
  for (const auto& [scale, query_size, offset] : {std::array{0.05, 1.0, 0.0}, {0.0, 12.0, 0.0}, {0.7, 0.01, 100.0}}) {
    batch_spec spec = ragged();
    spec.softmax_scale = scale, spec.query_size = query_size, spec.offset = offset;
    expect_plain(batch(spec));
  }
}

TEST(attend, each_term_of_the_score_error_acts_alone) {
  const batch b([] {
    auto spec = ragged();
    spec.type = bf16;
    return spec;
  }());
  for (int term = 0; term < 8; ++term) {
    score_error err;
    double* const terms[] = {&err.per_magnitude, &err.per_score,    &err.constant,     &err.per_size,
                             &err.var_score,     &err.var_products, &err.var_constant, &err.var_size};
    *terms[term] = 1e-3;
    const auto rows = attend_all(b, err);
    for (const auto& row : rows) expect_close(row, plain_attend(b, row.row, row.head, err), 1e-12);
    const bool bound = term < 4;
    EXPECT_EQ(std::ranges::any_of(rows, [](const auto& r) { return r.eta_bar > 0; }), bound) << term;
    EXPECT_EQ(std::ranges::any_of(rows, [](const auto& r) { return r.e1[0] > 0; }), bound) << term;
    EXPECT_EQ(std::ranges::any_of(rows, [](const auto& r) { return r.e2[0] > 0; }), !bound) << term;
  }
}

TEST(attend, endless_chains_give_huge_gauges_and_no_nan) {
  batch_spec spec = ragged();
  spec.query_size = 60;  // weights that underflow to zero
  batch b(spec);
  for (std::int64_t c = 0; c < spec.d; ++c) b.set_query(3, 1, c, 0);
  score_error err;
  err.per_magnitude = inf;
  for (const auto& row : attend_all(b, err)) {
    EXPECT_FALSE(std::isnan(row.eta_bar));
    EXPECT_TRUE(std::ranges::none_of(row.e1, [](double x) { return std::isnan(x); }));
    // Both directions: only a row without keys, or without products, has no error.
    EXPECT_EQ(row.eta_bar > 1e90, row.n > 0 && !(row.row == 3 && row.head == 1)) << row.row << " " << row.head;
  }
}

TEST(attend, empty_rows_are_zero_and_minus_infinity) {
  batch b(ragged());
  b.id(5, 0, 0) = b.id(5, 0, 1) = b.id(5, 0, 2) = b.id(5, 0, 3) = -1;  // a row that sees keys, but is given none
  std::size_t empty = 0;
  for (const auto& row : attend_all(b)) {
    // Row 3 has N_b = 0; rows 11 and 12 stand before their sequence's first position.
    const bool is_empty = row.row == 3 || row.row == 11 || row.row == 12 || (row.row == 5 && row.head < 2);
    EXPECT_EQ(row.n == 0, is_empty) << row.row;
    if (!is_empty) continue;
    ++empty;
    EXPECT_EQ(row.lse, -inf);
    EXPECT_EQ(row.eta_bar, 0);
    EXPECT_EQ(row.n_eff, 0);
    for (const auto* channels : {&row.out, &row.a, &row.dev, &row.q2, &row.e1, &row.e2, &row.x})
      EXPECT_EQ(*channels, std::vector<double>(16, 0.0));
  }
  EXPECT_EQ(empty, 3u * 4 + 2);
}

TEST(attend, rows_of_a_single_key_return_its_value_exactly) {
  batch_spec spec;
  spec.sequences = {{1, 1}, {3, 3}};
  spec.query_size = 30;
  const batch b(spec);
  for (const auto& row : attend(b.inputs(), std::vector<std::int64_t>{0, 1}, every_term)) {
    EXPECT_EQ(row.n, 1);
    EXPECT_EQ(row.n_eff, 1);
    EXPECT_EQ(row.lse, row.m);
    for (std::int64_t c = 0; c < spec.d; ++c) {
      EXPECT_EQ(row.out[static_cast<std::size_t>(c)], b.value(row.row, 0, row.head / 2, c));
      EXPECT_EQ(row.dev[static_cast<std::size_t>(c)], 0);
      EXPECT_EQ(row.e2[static_cast<std::size_t>(c)], 0);
    }
  }
}

TEST(attend, own_block_ends_at_the_position) {
  batch_spec spec;
  spec.sequences = {{40, 100}};
  const batch b(spec);
  for (const auto& row : attend_all(b)) {
    const std::int64_t position = 60 + row.row, blocks = std::min<std::int64_t>(4, position / 16 + 1);
    EXPECT_EQ(row.n, (blocks - 1) * 16 + position % 16 + 1);
  }
}

TEST(attend, zero_queries_average_the_values) {
  batch_spec spec;
  spec.sequences = {{1, 64}};
  spec.query_size = 0;
  batch b(spec);
  for (std::int64_t j = 0; j < 64; ++j)
    for (std::int64_t r = 0; r < 2; ++r)
      for (std::int64_t c = 0; c < 16; ++c) b.set_value(0, j, r, c, j / 16 == c ? 1 : 0);
  for (const auto& row : attend_all(b)) {
    EXPECT_EQ(row.lse, std::log(64.0));
    EXPECT_EQ(row.n_eff, 64);
    for (std::size_t c = 0; c < 16; ++c) EXPECT_EQ(row.out[c], c < 4 ? 0.25 : 0.0);
  }
}

TEST(attend, all_blocks_are_plain_softmax_attention) {
  batch_spec spec;
  spec.sequences = {{8, 300}};
  spec.topk = 19;
  const batch b(spec);
  for (const auto& row : attend_all(b)) {
    const std::int64_t visible = 292 + row.row + 1;
    ASSERT_EQ(row.n, visible);
    long double sum = 0;
    std::vector<long double> out(16, 0.0L);
    for (std::int64_t j = 0; j < visible; ++j) {
      long double dot = 0;
      for (std::int64_t c = 0; c < 16; ++c)
        dot += static_cast<long double>(b.query(row.row, row.head, c)) * b.key(0, j, row.head / 2, c);
      const long double weight = std::exp(dot / 4);
      sum += weight;
      for (std::int64_t c = 0; c < 16; ++c) out[static_cast<std::size_t>(c)] += weight * b.value(0, j, row.head / 2, c);
    }
    EXPECT_NEAR(row.lse, static_cast<double>(std::log(sum)), 1e-12);
    for (std::size_t c = 0; c < 16; ++c) EXPECT_NEAR(row.out[c], static_cast<double>(out[c] / sum), 1e-12);
  }
}

TEST(attend, lenient_ids_are_a_set) {
  batch_spec spec;
  spec.sequences = {{3, 200}};
  spec.topk = 8;
  batch canonical(spec), lenient(spec);
  canonical.set_ids([](auto, auto) { return std::vector<std::int32_t>{1, 4, 7, 12}; });
  lenient.set_ids([](auto, auto) {
    return std::vector<std::int32_t>{-1, 12, 4, 13, 7, 12, std::numeric_limits<std::int32_t>::min(), 1};
  });
  expect_same_bits(attend_all(lenient), attend_all(canonical));
  lenient.set_ids([](auto, auto) {
    return std::vector<std::int32_t>{std::numeric_limits<std::int32_t>::max(), 7, 7, 1, 4, 4, 12, -2};
  });
  expect_same_bits(attend_all(lenient), attend_all(canonical));
}

TEST(attend, no_block_is_added_to_the_ids) {
  batch_spec spec;
  spec.sequences = {{1, 200}};
  spec.local_blocks = 1, spec.init_blocks = 1;
  batch b(spec);
  b.set_ids([](auto, auto) { return std::vector<std::int32_t>{3}; });
  for (const auto& row : attend_all(b)) EXPECT_EQ(row.n, 16);
  expect_plain(b);
}

TEST(attend, page_permutation_changes_no_bit) {
  batch_spec spec = ragged();
  spec.type = bf16;
  const batch contiguous(spec);
  for (const auto layout : {page_layout::paged, page_layout::fused})
    for (const std::uint64_t order : {0, 1, 2}) {
      spec.layout = layout;
      spec.page_order = order;
      expect_same_bits(attend_all(batch(spec)), attend_all(contiguous));
    }
}

TEST(attend, batch_order_changes_no_bit) {
  batch_spec spec = ragged();
  spec.layout = page_layout::paged;
  const batch b(spec);
  const auto all = attend_all(b);
  const testing::reversed_sequences reversed(b.inputs());
  std::vector<attend_row> want;
  for (std::int64_t row = 0; row < b.rows(); ++row)
    for (std::int64_t h = 0; h < 4; ++h) want.push_back(all[static_cast<std::size_t>(reversed.old_row(row) * 4 + h)]);
  expect_same_bits(attend(reversed.inputs(), b.all_rows(), every_term), want);
}

TEST(attend, group_permutation_changes_no_bit) {
  batch_spec spec = ragged();
  spec.hq = 6, spec.hkv = 3;
  const batch b(spec);
  const auto all = attend_all(b);
  std::vector<attend_row> want;
  for (std::int64_t row = 0; row < b.rows(); ++row)
    for (std::int64_t h = 0; h < 6; ++h) want.push_back(all[static_cast<std::size_t>(row * 6 + 5 - h)]);
  expect_same_bits(attend(testing::with_reversed_groups(b.inputs()), b.all_rows(), every_term), want);
}

TEST(attend, chunks_and_single_tokens_equal_one_shot) {
  batch_spec spec;
  spec.sequences = {{150, 150}};
  const batch whole(spec);
  const auto want = attend_all(whole);
  for (const std::int32_t size : {1, 37, 64}) {
    std::vector<attend_row> got;
    for (std::int32_t first = 0; first < 150; first += size) {
      const std::int32_t end = std::min(150, first + size);
      const testing::chunk_of chunk(whole.inputs(), first, end);
      for (auto& row : attend(chunk.inputs(), chunk.rows(), every_term)) {
        row.row += first;
        got.push_back(std::move(row));
      }
    }
    expect_same_bits(got, want);
  }
}

TEST(attend, a_batch_equals_its_sequences_alone) {
  batch_spec spec;
  spec.sequences = {{4, 90}};
  const batch alone(spec);
  spec.sequences = {{4, 90}, {3, 33}};
  const batch both(spec);  // the first sequence holds the same values, its ids too
  auto got = attend_all(both);
  got.resize(16);
  expect_same_bits(got, attend_all(alone));
}

TEST(attend, wanted_rows_come_in_the_order_asked_for) {
  const batch b(ragged());
  const auto all = attend_all(b);
  const std::vector<std::int64_t> rows{7, 0, 7, 12};
  const auto some = attend(b.inputs(), rows, every_term);
  std::vector<attend_row> want;
  for (const auto row : rows)
    for (std::int64_t h = 0; h < 4; ++h) want.push_back(all[static_cast<std::size_t>(row * 4 + h)]);
  expect_same_bits(some, want);
  for (std::size_t i = 0; i < some.size(); ++i) {
    EXPECT_EQ(some[i].row, rows[i / 4]);
    EXPECT_EQ(some[i].head, static_cast<std::int64_t>(i % 4));
  }
  EXPECT_TRUE(attend(b.inputs(), std::vector<std::int64_t>{}, every_term).empty());
}

TEST(attend, threads_and_repeats_change_no_bit) {
  batch_spec spec = ragged();
  spec.d = 128, spec.hq = 16;
  spec.sequences.emplace_back(24, 160);
  const batch b(spec);
  omp_set_num_threads(1);
  const auto one = attend_all(b);
  for (const int threads : {1, 2, 3, 3}) {
    omp_set_num_threads(threads);
    expect_same_bits(attend_all(b), one);
  }
  omp_set_num_threads(omp_get_num_procs());
}

TEST(attend, nothing_but_selected_visible_keys_is_read) {
  // batch stores NaN in every slot past a sequence, in foreign pages and between; here also in blocks that no row
  // selects.
  batch_spec spec;
  spec.sequences = {{4, 150}};
  spec.layout = page_layout::paged;
  batch b(spec);
  b.set_ids([](auto, auto) { return std::vector<std::int32_t>{2, 9}; });
  for (std::int64_t j = 0; j < 150; ++j)
    if (j / 16 != 2 && j / 16 != 9)
      for (std::int64_t c = 0; c < 16; ++c) b.set_value(0, j, 1, c, std::numeric_limits<double>::quiet_NaN());
  for (const auto& row : attend_all(b))
    EXPECT_TRUE(std::ranges::all_of(row.x, [](double x) { return std::isfinite(x); })) << row.row;
}

TEST(attend, strided_views_are_followed) {
  const batch b(ragged());
  auto in = b.inputs();
  // q with a gap of one head's width after each head.
  std::vector<float> wide(static_cast<std::size_t>(b.rows() * 4 * 32), std::numeric_limits<float>::quiet_NaN());
  for (std::int64_t row = 0; row < b.rows(); ++row)
    for (std::int64_t h = 0; h < 4; ++h)
      for (std::int64_t c = 0; c < 16; ++c)
        wide[static_cast<std::size_t>((row * 4 + h) * 32 + c)] = static_cast<float>(b.query(row, h, c));
  in.q.data = wide.data();
  in.q.desc.strides = {128, 32, 1};
  // ids stored [H,T,k].
  std::vector<std::int32_t> ids(static_cast<std::size_t>(2 * b.rows() * 4));
  for (std::int64_t row = 0; row < b.rows(); ++row)
    for (std::int64_t r = 0; r < 2; ++r)
      for (std::int64_t s = 0; s < 4; ++s)
        ids[static_cast<std::size_t>((r * b.rows() + row) * 4 + s)] = in.ids.int_at(row, r, s);
  in.ids.data = ids.data();
  in.ids.desc.strides = {4, b.rows() * 4, 1};
  expect_same_bits(attend(in, b.all_rows(), every_term), attend_all(b));
}

TEST(attend, keys_scores_and_values_are_those_of_the_result) {
  batch_spec spec = ragged();
  spec.type = bf16;
  spec.layout = page_layout::fused;
  const batch b(spec);
  for (const auto& row : attend_all(b)) {
    const auto keys = attended_keys(b.inputs(), row.row, row.head);
    ASSERT_EQ(std::ssize(keys), row.n);
    if (keys.empty()) continue;
    double m = -inf, sum = 0;
    std::vector<double> out(16, 0.0), value(16);
    for (const auto& key : keys) {
      EXPECT_EQ(key.block, key.key / 16);
      EXPECT_EQ(score_of(b.inputs(), row.row, row.head, key.key), key.score);
      value_of(b.inputs(), row.row, row.head / 2, key.key, value);
      m = std::max(m, key.score);
      sum += key.weight;
      for (std::size_t c = 0; c < 16; ++c) out[c] += key.weight * value[c];
    }
    EXPECT_TRUE(std::ranges::is_sorted(keys, {}, &attended_key::key));
    EXPECT_EQ(m, row.m);
    EXPECT_NEAR(sum, 1, 1e-14);
    for (std::size_t c = 0; c < 16; ++c) EXPECT_NEAR(out[c], row.out[c], 1e-13);
  }
}

TEST(attend, scores_of_keys_that_were_not_selected_can_be_asked_for) {
  batch_spec spec;
  spec.sequences = {{2, 50}, {1, 90}};
  const batch b(spec);
  double dot = 0;
  for (std::int64_t c = 0; c < 16; ++c) dot += b.query(2, 3, c) * b.key(1, 5, 1, c);
  EXPECT_NEAR(score_of(b.inputs(), 2, 3, 5), dot / 4, 1e-14);
  std::vector<double> value(16);
  value_of(b.inputs(), 2, 0, 5, value);
  for (std::int64_t c = 0; c < 16; ++c) EXPECT_EQ(value[static_cast<std::size_t>(c)], b.value(1, 5, 0, c));
}

TEST(attend, contradicting_shapes_and_rows_are_refused) {
  const batch b(ragged());
  EXPECT_THROW(attend(b.inputs(), std::vector<std::int64_t>{16}, every_term), suite_error);
  EXPECT_THROW(attend(b.inputs(), std::vector<std::int64_t>{-1}, every_term), suite_error);
  EXPECT_THROW(attended_keys(b.inputs(), 0, 4), suite_error);
  const auto refused = [&](auto change) {
    auto in = b.inputs();
    change(in);
    EXPECT_THROW(attend(in, b.all_rows(), every_term), suite_error);
  };
  refused([](auto& in) { in.q.desc.shape[1] = 5; });
  refused([](auto& in) { in.v.desc.shape[2] = 8; });
  refused([](auto& in) { in.k.desc.strides[2] = 2; });
  refused([](auto& in) { in.ids.desc.shape[1] = 4; });
  refused([](auto& in) { in.p.layout = page_layout::paged, in.p.page_size = 16; });
  refused([](auto& in) { in.p.hkv = 3; });
}

TEST(attend, empty_batches_give_no_rows) {
  batch_spec spec;
  EXPECT_TRUE(attend_all(batch(spec)).empty());
  spec.sequences = {{0, 0}, {0, 30}};
  EXPECT_TRUE(attend_all(batch(spec)).empty());
}

}  // namespace
}  // namespace msabench::reference

// SPDX-License-Identifier: Apache-2.0
#include "reference/score.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>

#include "batch.h"
#include "core/error.h"
#include "index_batch.h"

namespace msabench::reference {
namespace {

using testing::expect_plain_scores;
using testing::expect_same_bits;
using testing::hashed_normal;
using testing::index_batch;
using testing::index_spec;
using testing::plain_index_keys;

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
using doubles = std::vector<double>;

constexpr interval_model both_terms{1e-3, 2e-4};

std::vector<score_row> score_all(const index_batch& b, const interval_model& model = both_terms) {
  return score(b.inputs(), b.all_rows(), model);
}

void expect_plain(const index_batch& b, const interval_model& model = both_terms) {
  const auto rows = score_all(b, model);
  ASSERT_EQ(rows.size(), static_cast<std::size_t>(b.rows() * b.spec().hi));
  for (const auto& row : rows) expect_plain_scores(b, row, model, 1e-13);
}

// Empty sequences, padding rows, short and long prefixes, a last block of one key.
index_spec ragged() {
  index_spec spec;
  spec.sequences = {{0, 0}, {3, 3}, {1, 0}, {5, 149}, {0, 40}, {2, 128}, {4, 2}, {1, 1}, {2, 129}, {0, 0}};
  return spec;
}

// One query row with N keys, all entries of queries and keys 0 but for channel 0: s_j = q k_j / 4.
void make_simple(index_batch& b, double query, const doubles& keys) {
  for (std::int64_t h = 0; h < b.spec().hi; ++h)
    for (std::int64_t c = 0; c < b.spec().di; ++c) b.set_query(0, h, c, c == 0 ? query : 0);
  for (std::size_t j = 0; j < keys.size(); ++j)
    for (std::int64_t c = 0; c < b.spec().di; ++c) b.set_key(0, static_cast<std::int64_t>(j), c, c == 0 ? keys[j] : 0);
}

index_spec single_row(std::int64_t keys, std::int32_t block = 4) {
  index_spec spec;
  spec.sequences = {{1, keys}};
  spec.block = block;
  spec.hi = 1;
  return spec;
}

struct storage_case {
  const char* name;
  dtype type;
  page_layout layout;
  std::int32_t page_size, scales;
};
void PrintTo(const storage_case& c, std::ostream* out) { *out << c.name; }

class score_storage : public ::testing::TestWithParam<storage_case> {};

TEST_P(score_storage, scores_and_intervals_are_those_of_the_plain_formulas) {
  index_spec spec = ragged();
  std::tie(spec.type, spec.layout, spec.page_size, spec.scales) =
      std::tuple(GetParam().type, GetParam().layout, GetParam().page_size, GetParam().scales);
  spec.page_order = 77;
  expect_plain(index_batch(spec));
}

INSTANTIATE_TEST_SUITE_P(, score_storage,
                         ::testing::Values(storage_case{"bf16", bf16, page_layout::contiguous, 0, 0},
                                           storage_case{"fp16", fp16, page_layout::contiguous, 0, 0},
                                           storage_case{"fp32", fp32, page_layout::contiguous, 0, 0},
                                           storage_case{"fp64", fp64, page_layout::contiguous, 0, 0},
                                           storage_case{"e4m3_without_scales", e4m3, page_layout::contiguous, 0, 0},
                                           storage_case{"e4m3_one_scale", e4m3, page_layout::contiguous, 0, 1},
                                           storage_case{"e4m3_scale_per_token", e4m3, page_layout::contiguous, 0, 2},
                                           storage_case{"bf16_paged", bf16, page_layout::paged, 0, 0},
                                           storage_case{"fp32_page_is_not_block", fp32, page_layout::paged, 24, 0},
                                           storage_case{"slot_addressed", fp16, page_layout::paged, 1, 0},
                                           storage_case{"e4m3_paged_one_scale", e4m3, page_layout::paged, 0, 1},
                                           storage_case{"e4m3_paged_scale_per_token", e4m3, page_layout::paged, 8, 2},
                                           storage_case{"bf16_beside_fused_kv", bf16, page_layout::fused, 0, 0}),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST(score, random_shapes_follow_the_plain_formulas) {
  std::uint64_t at = 0;
  const auto pick = [&](std::int64_t least, std::int64_t most) {
    const double u = std::abs(hashed_normal(9, 21, at++)) / 4;
    return least + std::min(most - least, static_cast<std::int64_t>(u * static_cast<double>(most - least + 1)));
  };
  const dtype types[] = {bf16, fp16, fp32, fp64, e4m3};
  for (int round = 0; round < 40; ++round) {
    index_spec spec;
    for (std::int64_t b = pick(1, 4); b > 0; --b) {
      const std::int64_t kv_len = pick(0, 300);
      spec.sequences.emplace_back(pick(0, 5), kv_len);
    }
    spec.hi = static_cast<std::int32_t>(pick(1, 5)), spec.di = static_cast<std::int32_t>(pick(1, 40));
    spec.block = static_cast<std::int32_t>(pick(1, 150)), spec.page_size = static_cast<std::int32_t>(pick(1, 40));
    spec.type = types[pick(0, 4)], spec.scales = static_cast<std::int32_t>(pick(0, 2));
    spec.layout = pick(0, 1) == 0 ? page_layout::contiguous : page_layout::paged;
    spec.seed = spec.page_order = static_cast<std::uint64_t>(round);
    const interval_model model{std::exp2(-hashed_normal(9, 22, at++)) / 100,
                               std::exp2(hashed_normal(9, 23, at++)) / 100};
    SCOPED_TRACE(round);
    expect_plain(index_batch(spec), model);
  }
}

TEST(score, model_shape_and_shards_follow_the_plain_formulas) {
  for (const std::int32_t hi : {1, 2, 4}) {
    index_spec spec;
    spec.sequences = {{2, 700}, {1, 129}};
    spec.hi = hi, spec.di = 128, spec.block = 128, spec.type = bf16;
    expect_plain(index_batch(spec));
  }
}

TEST(score, rows_longer_than_a_stretch_of_work_follow_the_plain_formulas) {
  for (const std::int32_t block : {16, 24, 5, 128, 9000}) {
    index_spec spec;
    spec.sequences = {{1, 20011}, {2, 8192}};
    spec.di = 3, spec.block = block, spec.hi = 2;
    expect_plain(index_batch(spec));
  }
}

TEST(score, another_scale_than_the_default_is_followed) {
  for (const double scale : {0.05, 1.0, -0.5}) {
    index_spec spec = ragged();
    spec.index_scale = scale;
    expect_plain(index_batch(spec));
  }
}

TEST(score, keys_past_the_position_do_not_count_before_the_maximum) {
  index_spec spec = single_row(10);
  spec.sequences = {{3, 10}};
  index_batch b(spec);
  for (std::int64_t row = 0; row < 3; ++row)
    for (std::int64_t c = 0; c < 16; ++c) b.set_query(row, 0, c, c == 0 ? 1 : 0);
  for (std::int64_t j = 0; j < 10; ++j) b.set_key(0, j, 0, static_cast<double>(j));
  const auto rows = score_all(b, {});
  EXPECT_EQ(rows[0].value, (doubles{0.75, 1.75}));
  EXPECT_EQ(rows[1].value, (doubles{0.75, 1.75, 2.0}));
  EXPECT_EQ(rows[2].value, (doubles{0.75, 1.75, 2.25}));
  EXPECT_EQ(rows[2].key, (std::vector<std::int64_t>{3, 7, 9}));
}

TEST(score, partly_visible_last_blocks_take_the_maximum_of_what_is_visible) {
  for (const std::int64_t n : {1, 2, 3, 4, 5, 127, 128, 129}) {
    const index_batch b(single_row(n, 64));
    const auto rows = score_all(b);
    ASSERT_EQ(std::ssize(rows[0].value), (n + 63) / 64);
    expect_plain(b);
  }
}

TEST(score, slots_past_the_length_hold_nan_and_are_not_read) {
  // index_batch stores NaN in every slot past a sequence, in foreign pages and in their scales.
  index_spec spec = ragged();
  spec.type = e4m3, spec.scales = 2, spec.layout = page_layout::paged;
  for (const auto& row : score_all(index_batch(spec)))
    for (std::size_t b = 0; b < row.value.size(); ++b) {
      EXPECT_TRUE(std::isfinite(row.value[b])) << row.row;
      EXPECT_TRUE(std::isfinite(row.lo[b])) << row.row;
    }
}

TEST(score, negative_scores_stay_negative) {
  index_batch b(single_row(6));
  make_simple(b, -1, {4, 8, 12, 16, 20, 24});
  EXPECT_EQ(score_all(b, {})[0].value, (doubles{-1, -5}));
}

TEST(score, nan_keys_are_ignored_and_take_the_lower_end_away) {
  index_batch b(single_row(10));
  make_simple(b, 4, {1, nan, 2, 0, nan, nan, nan, nan, nan, -1});
  const auto row = score_all(b, {0.25, 0})[0];  // G = |s|
  EXPECT_EQ(row.value, (doubles{2, -inf, -1}));
  EXPECT_EQ(row.hi, (doubles{2.5, -inf, -0.75}));
  EXPECT_EQ(row.lo, (doubles{-inf, -inf, -inf}));
  EXPECT_EQ(row.key, (std::vector<std::int64_t>{2, -1, 9}));
}

TEST(score, nan_keys_that_propagate_rank_their_block_last) {
  index_batch b(single_row(10));
  make_simple(b, 4, {1, nan, 2, 0, inf, nan, 1, nan, 5, -1});
  interval_model model{0.25, 0};
  model.propagate_nan = true;
  const auto row = score_all(b, model)[0];
  EXPECT_TRUE(std::isnan(row.value[0]) && std::isnan(row.value[1]));
  EXPECT_EQ(row.value[2], 5);
  EXPECT_EQ(row.hi, (doubles{-inf, -inf, 6.25}));
  EXPECT_EQ(row.lo, (doubles{-inf, -inf, 3.75}));
  EXPECT_EQ(row.key, (std::vector<std::int64_t>{1, 5, 8}));
}

TEST(score, infinite_keys_rank_naturally) {
  index_batch b(single_row(16));
  make_simple(b, 4, {1, inf, -inf, 2, -inf, -inf, -inf, -inf, -inf, 3, -inf, -5, inf, nan, -inf, 0});
  const auto row = score_all(b, {0.25, 0})[0];
  EXPECT_EQ(row.value, (doubles{inf, -inf, 3, inf}));
  EXPECT_EQ(row.hi, (doubles{inf, -inf, 3.75, inf}));
  EXPECT_EQ(row.lo, (doubles{inf, -inf, 2.25, -inf}));
  EXPECT_EQ(row.key, (std::vector<std::int64_t>{1, 4, 9, 12}));
}

TEST(score, infinities_that_cancel_are_nan) {
  index_batch b(single_row(2, 2));
  make_simple(b, 1, {1, 7});
  b.set_query(0, 0, 1, -1);
  b.set_key(0, 1, 0, inf);
  b.set_key(0, 1, 1, inf);  // inf - inf
  const auto row = score_all(b, {})[0];
  EXPECT_EQ(row.value, (doubles{0.25}));
  EXPECT_EQ(row.lo, (doubles{-inf}));
  b.set_query(0, 0, 1, 0);  // 0 * inf
  EXPECT_EQ(score_all(b, {})[0].value, (doubles{0.25}));
}

TEST(score, negative_zero_equals_zero) {
  index_spec spec = single_row(4, 2);
  spec.scales = 2;
  index_batch b(spec);
  make_simple(b, 0, {1, 1, 1, 1});
  for (const std::int64_t j : {0, 3}) b.set_key_scale(0, j, -1);  // their scores are -0
  const auto row = score_all(b)[0];
  EXPECT_EQ(row.value, (doubles{0, 0}));
  EXPECT_TRUE(std::signbit(row.value[0]));
  EXPECT_FALSE(std::signbit(row.value[1]));
  EXPECT_EQ(row.key, (std::vector<std::int64_t>{0, 2}));
  EXPECT_EQ(row.lo, row.hi);
}

TEST(score, of_equal_keys_the_first_is_named) {
  index_batch b(single_row(8));
  make_simple(b, 4, {1, 3, 3, 2, 5, 5, 5, 5});
  EXPECT_EQ(score_all(b)[0].key, (std::vector<std::int64_t>{1, 4}));
}

TEST(score, rows_of_a_single_key_have_its_score) {
  index_spec spec;
  spec.sequences = {{1, 1}, {2, 2}};
  const index_batch b(spec);
  for (const auto& row : score(b.inputs(), std::vector<std::int64_t>{0, 1}, both_terms)) {
    ASSERT_EQ(row.value.size(), 1u);
    expect_plain_scores(b, row, both_terms, 1e-13);
    EXPECT_EQ(row.key[0], 0);
  }
}

TEST(score, empty_rows_have_no_visible_block) {
  const index_batch b(ragged());
  std::size_t empty = 0;
  for (const auto& row : score_all(b)) {
    // Row 3 has N_b = 0; rows 11 and 12 stand before their sequence's first position.
    const bool is_empty = row.row == 3 || row.row == 11 || row.row == 12;
    EXPECT_EQ(row.value.empty(), is_empty) << row.row;
    EXPECT_EQ(row.lo.size() + row.hi.size() + row.key.size(), 3 * row.value.size());
    empty += is_empty ? 1 : 0;
  }
  EXPECT_EQ(empty, 3u * 2);
  index_spec none;
  EXPECT_TRUE(score_all(index_batch(none)).empty());
  none.sequences = {{0, 0}, {0, 30}};
  EXPECT_TRUE(score_all(index_batch(none)).empty());
}

TEST(score, intervals_turn_infinite_where_the_emitted_score_would_overflow) {
  index_batch b(single_row(16));
  make_simple(b, 4, {10, 0, 0, 0, 9, 9, 9, 9, -9, -9, -9, -9, -10, -10, -10, -10});
  // delta = |s| / 4: intervals [7.5, 12.5], [6.75, 11.25], [-11.25, -6.75], [-12.5, -7.5]. Emitted at twice the size.
  interval_model model{0.25, 0, 2, 24};
  const auto row = score_all(b, model)[0];
  EXPECT_EQ(row.value, (doubles{10, 9, -9, -10}));
  EXPECT_EQ(row.hi, (doubles{inf, 11.25, -6.75, -7.5}));
  EXPECT_EQ(row.lo, (doubles{7.5, 6.75, -11.25, -inf}));
  model.largest = 25;  // reached, not passed
  EXPECT_EQ(score_all(b, model)[0].hi[0], 12.5);
  EXPECT_EQ(score_all(b, model)[0].lo[3], -12.5);
}

TEST(score, endless_chains_leave_no_bound_and_no_nan) {
  index_batch b(ragged());
  for (std::int64_t c = 0; c < 16; ++c) b.set_query(5, 1, c, 0);
  for (const auto& row : score_all(b, {inf, 0}))
    for (std::size_t block = 0; block < row.value.size(); ++block) {
      const bool exact = row.row == 5 && row.head == 1;  // no products, no error
      EXPECT_EQ(row.hi[block], exact ? 0 : inf);
      EXPECT_EQ(row.lo[block], exact ? 0 : -inf);
    }
}

// Any implementation whose scores are off by no more than delta_j stays inside, and each end is reached by one.
TEST(score, intervals_are_sound_and_tight) {
  index_spec spec = ragged();
  spec.type = bf16;
  const index_batch b(spec);
  const interval_model model{3e-3, 1e-2};
  std::uint64_t at = 0;
  for (const auto& row : score_all(b, model)) {
    const auto keys = plain_index_keys(b, row.row, row.head);
    for (int perturbation = 0; perturbation < 20; ++perturbation) {
      std::vector<long double> got(row.value.size(), -inf);
      for (const auto& key : keys) {
        const long double shift = perturbation == 0   ? 1
                                  : perturbation == 1 ? -1
                                  : perturbation < 6  ? (hashed_normal(4, 31, at++) < 0 ? -1 : 1)
                                                      : std::clamp(hashed_normal(4, 32, at++), -1.0, 1.0);
        auto& block = got[static_cast<std::size_t>(key.block)];
        block = std::max(block, key.score + shift * key.delta(model));
      }
      for (std::size_t block = 0; block < got.size(); ++block) {
        EXPECT_LE(got[block], row.hi[block] + 1e-13);
        EXPECT_GE(got[block], row.lo[block] - 1e-13);
        if (perturbation < 2) {
          EXPECT_NEAR(static_cast<double>(got[block]), (perturbation == 0 ? row.hi : row.lo)[block], 1e-13);
        }
        EXPECT_LE(row.lo[block], row.value[block]);
        EXPECT_GE(row.hi[block], row.value[block]);
      }
    }
  }
}

// Sums in fp32, term by term, forwards and backwards: di + 2 dependent roundings of 2^-24.
TEST(score, scores_computed_in_fp32_lie_inside_their_intervals) {
  index_spec spec;
  spec.sequences = {{3, 2000}};
  spec.di = 128, spec.block = 128, spec.type = bf16;
  const index_batch b(spec);
  const double chain = (spec.di + 2) * std::exp2(-24);
  const auto rows = score_all(b, {chain / (1 - chain), 0});
  double most_used = 0;
  for (const auto& row : rows)
    for (const bool backwards : {false, true}) {
      std::vector<float> got(row.value.size(), -std::numeric_limits<float>::infinity());
      const row_place at = b.place(row.row);
      for (std::int64_t j = 0; j <= at.position; ++j) {
        float sum = 0;
        for (std::int64_t i = 0; i < spec.di; ++i) {
          const std::int64_t c = backwards ? spec.di - 1 - i : i;
          sum += static_cast<float>(b.query(row.row, row.head, c)) * static_cast<float>(b.key(0, j, c));
        }
        sum *= static_cast<float>(1 / std::sqrt(128.0));
        auto& block = got[static_cast<std::size_t>(j / spec.block)];
        block = std::max(block, sum);
      }
      for (std::size_t block = 0; block < got.size(); ++block) {
        EXPECT_LE(got[block], row.hi[block]);
        EXPECT_GE(got[block], row.lo[block]);
        most_used = std::max(most_used, std::abs(got[block] - row.value[block]) / (row.hi[block] - row.value[block]));
      }
    }
  EXPECT_GT(most_used, 1e-3);  // the limit is of the errors' kind, not of another order
}

TEST(score, page_permutation_changes_no_bit) {
  index_spec spec = ragged();
  spec.type = e4m3, spec.scales = 2;
  const index_batch contiguous(spec);
  for (const std::int32_t page_size : {16, 7, 1})
    for (const std::uint64_t order : {0, 1, 2}) {
      spec.layout = page_layout::paged, spec.page_size = page_size, spec.page_order = order;
      expect_same_bits(score_all(index_batch(spec)), score_all(contiguous));
    }
}

TEST(score, chunks_and_single_tokens_equal_one_shot) {
  index_spec spec;
  spec.sequences = {{150, 150}};
  const auto want = score_all(index_batch(spec));
  for (const std::int64_t chunk : {1, 37, 64}) {
    std::vector<score_row> got;
    for (std::int64_t first = 0; first < 150; first += chunk) {
      const std::int64_t end = std::min<std::int64_t>(150, first + chunk);
      spec.sequences = {{end - first, end}};  // values go with positions
      for (auto& row : score_all(index_batch(spec))) {
        row.row += first;
        got.push_back(std::move(row));
      }
    }
    expect_same_bits(got, want);
  }
}

TEST(score, the_order_of_the_batch_changes_no_bit) {
  index_spec spec;
  spec.sequences = {{4, 90}, {3, 33}, {1, 0}, {2, 129}};
  const auto want = score_all(index_batch(spec));
  spec.sequences = {{2, 129}, {1, 0}, {4, 90}, {3, 33}};
  spec.labels = {3, 2, 0, 1};
  auto got = score_all(index_batch(spec));
  std::ranges::rotate(got, got.begin() + 3 * 2);  // rows of the first two sequences to the end
  std::rotate(got.end() - 3 * 2, got.end() - 2, got.end());
  for (std::size_t i = 0; i < got.size(); ++i) got[i].row = static_cast<std::int64_t>(i) / 2;
  expect_same_bits(got, want);
}

TEST(score, heads_score_for_themselves) {
  index_spec spec = ragged();
  spec.hi = 4;
  const index_batch b(spec);
  index_batch permuted(spec);
  constexpr std::int64_t order[] = {2, 0, 3, 1};
  for (std::int64_t row = 0; row < b.rows(); ++row)
    for (std::int64_t h = 0; h < 4; ++h)
      for (std::int64_t c = 0; c < 16; ++c) permuted.set_query(row, h, c, b.query(row, order[h], c));
  const auto want = score_all(b);
  const auto got = score_all(permuted);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto& same = want[i / 4 * 4 + static_cast<std::size_t>(order[i % 4])];
    EXPECT_EQ(got[i].value, same.value);
    EXPECT_EQ(got[i].lo, same.lo);
    EXPECT_EQ(got[i].hi, same.hi);
    EXPECT_EQ(got[i].key, same.key);
  }
  EXPECT_NE(want[10].value, want[11].value);
}

TEST(score, wanted_rows_come_in_the_order_asked_for) {
  const index_batch b(ragged());
  const auto all = score_all(b);
  const std::vector<std::int64_t> rows{9, 0, 9, 4};
  const auto got = score(b.inputs(), rows, both_terms);
  std::vector<score_row> want;
  for (const std::int64_t row : rows)
    for (std::size_t h = 0; h < 2; ++h) want.push_back(all[static_cast<std::size_t>(row) * 2 + h]);
  expect_same_bits(got, want);
}

TEST(score, strided_views_are_followed) {
  const index_batch b(ragged());
  auto in = b.inputs();
  std::vector<float> wide(static_cast<std::size_t>(b.rows() * 2 * 32), std::numeric_limits<float>::quiet_NaN());
  for (std::int64_t row = 0; row < b.rows(); ++row)
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t c = 0; c < 16; ++c)
        wide[static_cast<std::size_t>((h * b.rows() + row) * 32 + c)] = static_cast<float>(b.query(row, h, c));
  in.q_idx.data = wide.data();
  in.q_idx.desc.strides = {32, b.rows() * 32, 1};
  expect_same_bits(score(in, b.all_rows(), both_terms), score_all(b));
}

TEST(score, threads_and_repeats_change_no_bit) {
  index_spec spec;
  spec.sequences = {{2, 30000}, {5, 900}};
  spec.di = 32, spec.type = bf16;
  const index_batch b(spec);
  omp_set_num_threads(1);
  const auto one = score_all(b);
  for (const int threads : {1, 2, 3, 3}) {
    omp_set_num_threads(threads);
    expect_same_bits(score_all(b), one);
  }
  omp_set_num_threads(omp_get_num_procs());
}

TEST(score, contradicting_shapes_and_rows_are_refused) {
  index_spec spec = ragged();
  spec.scales = 2;
  const index_batch b(spec);
  EXPECT_THROW(score(b.inputs(), std::vector<std::int64_t>{18}, {}), suite_error);
  EXPECT_THROW(score(b.inputs(), std::vector<std::int64_t>{-1}, {}), suite_error);
  const auto refused = [&](auto change) {
    auto in = b.inputs();
    change(in);
    EXPECT_THROW(score(in, b.all_rows(), {}), suite_error);
  };
  refused([](auto& in) { in.q_idx.desc.shape[1] = 3; });
  refused([](auto& in) { in.q_idx.desc.shape[2] = 8; });
  refused([](auto& in) { in.q_idx.desc.strides[2] = 2; });
  refused([](auto& in) { in.k_idx.desc.shape[1] = 8; });
  refused([](auto& in) { in.k_idx.desc.strides[1] = 2; });
  refused([](auto& in) { in.p.layout = page_layout::paged, in.p.page_size = 16; });
  refused([](auto& in) { in.p.hi = 0; });
  refused([](auto& in) { in.q_idx_scale.desc.shape[1] = 3; });
  refused([](auto& in) { in.k_idx_scale.desc.shape = {2, 2}; });
}

TEST(score_block, is_one_block_of_the_row_bit_by_bit) {
  index_spec spec = ragged();
  spec.layout = page_layout::paged;
  spec.page_order = 3;
  index_batch b(spec);
  b.set_key(3, 20, 1, nan);
  for (const bool propagate : {false, true}) {
    interval_model model = both_terms;
    model.propagate_nan = propagate;
    for (const auto& row : score_all(b, model))
      for (std::size_t block = 0; block < row.value.size(); ++block) {
        const block_score one = score_block(b.inputs(), row.row, row.head, static_cast<std::int64_t>(block), model);
        const double want[] = {row.value[block], row.lo[block], row.hi[block]}, got[] = {one.value, one.lo, one.hi};
        EXPECT_EQ(std::memcmp(got, want, sizeof want), 0);
        EXPECT_EQ(one.key, row.key[block]);
      }
  }
}

}  // namespace
}  // namespace msabench::reference

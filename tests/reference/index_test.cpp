// SPDX-License-Identifier: Apache-2.0
#include "reference/index.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "batch.h"
#include "core/error.h"
#include "index_batch.h"
#include "reference/select.h"

namespace msabench::reference {
namespace {

using testing::expect_plain_lse;
using testing::expect_plain_scores;
using testing::expect_same_bits;
using testing::hashed_normal;
using testing::index_batch;
using testing::index_spec;
using testing::plain_index_keys;
using testing::plain_score;

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
using ids = std::vector<std::int32_t>;

constexpr interval_model both_terms{1e-3, 2e-4};
constexpr score_error every_term{1e-3, 2e-4, 1e-5, 3e-5, 0, 0, 0, 0};

std::vector<index_row> index_all(const index_batch& b, const interval_model& model = both_terms) {
  return index(b.inputs(), b.all_rows(), model, every_term);
}

// What the check of a selection asks for: is there a ranking within the intervals that selects these ids?
bool legal(const index_row& r, const problem& p) {
  const std::int64_t visible = std::ssize(r.scores.value);
  double worst_chosen = inf, best_left = -inf;
  std::int64_t chosen = 0;
  for (std::int64_t b = 0; b < visible; ++b) {
    const bool taken = std::ranges::find(r.ids, b) != r.ids.end();
    const bool is_forced = forced(b, visible - 1, p.local_blocks, p.init_blocks);
    chosen += taken ? 1 : 0;
    if (is_forced && !taken) return false;
    if (taken && !is_forced) worst_chosen = std::min(worst_chosen, r.scores.hi[static_cast<std::size_t>(b)]);
    if (!taken) best_left = std::max(best_left, r.scores.lo[static_cast<std::size_t>(b)]);
  }
  return chosen == std::min<std::int64_t>(p.topk, visible) && worst_chosen >= best_left;
}

void expect_plain(const index_batch& b) {
  const problem& p = b.inputs().p;
  const auto rows = index_all(b);
  ASSERT_EQ(rows.size(), static_cast<std::size_t>(b.rows() * p.hi));
  for (const auto& row : rows) {
    EXPECT_EQ(row.row, row.scores.row);
    EXPECT_EQ(row.head, row.scores.head);
    expect_plain_scores(b, row.scores, both_terms, 1e-13);
    const auto want = plain_score(b, row.row, row.head, both_terms);
    EXPECT_EQ(row.ids, select_row(want.value, std::ssize(want.value), p.topk, p.local_blocks, p.init_blocks));
    EXPECT_TRUE(legal(row, p));
    expect_plain_lse(b, row.lse, row.ids, every_term, 1e-13);
  }
}

index_spec ragged() {
  index_spec spec;
  spec.sequences = {{0, 0}, {3, 3}, {1, 0}, {5, 149}, {0, 40}, {2, 128}, {4, 2}, {1, 1}, {2, 129}, {0, 0}};
  return spec;
}

// One row whose blocks of two keys have the given scores, through channel 0; the second key of a block is lower.
index_spec simple(std::size_t blocks) {
  index_spec spec;
  spec.sequences = {{1, static_cast<std::int64_t>(2 * blocks)}};
  spec.block = 2, spec.hi = 1;
  return spec;
}
void set_scores(index_batch& b, const std::vector<double>& scores) {
  for (std::int64_t c = 0; c < b.spec().di; ++c) b.set_query(0, 0, c, c == 0 ? 4 : 0);
  for (std::size_t block = 0; block < scores.size(); ++block)
    for (std::int64_t c = 0; c < b.spec().di; ++c)
      for (const std::int64_t offset : {0, 1})
        b.set_key(0, 2 * static_cast<std::int64_t>(block) + offset, c,
                  c == 0 ? scores[block] - (std::isinf(scores[block]) ? 0 : 10.0 * static_cast<double>(offset)) : 0);
}
ids select_simple(const std::vector<double>& scores, std::int32_t topk, std::int32_t local, std::int32_t init) {
  index_spec spec = simple(scores.size());
  spec.topk = topk, spec.local_blocks = local, spec.init_blocks = init;
  index_batch b(spec);
  set_scores(b, scores);
  const auto rows = index_all(b);
  EXPECT_TRUE(legal(rows[0], b.inputs().p));
  return rows[0].ids;
}

TEST(index, everything_is_that_of_the_plain_formulas_in_every_storage) {
  for (const auto& [type, layout, page_size, scales] : {std::tuple{fp64, page_layout::contiguous, 0, 0},
                                                        {bf16, page_layout::contiguous, 0, 0},
                                                        {fp32, page_layout::paged, 24, 0},
                                                        {e4m3, page_layout::contiguous, 0, 1},
                                                        {e4m3, page_layout::paged, 0, 2}}) {
    index_spec spec = ragged();
    spec.type = type, spec.layout = layout, spec.page_size = page_size, spec.scales = scales, spec.page_order = 5;
    expect_plain(index_batch(spec));
  }
}

TEST(index, odd_shapes_follow_the_plain_formulas) {
  struct shape {
    std::int32_t hi, di, block, topk;
  };
  for (const shape& s : {shape{1, 1, 1, 1}, shape{3, 24, 32, 2}, shape{4, 128, 128, 16}, shape{6, 7, 5, 9}}) {
    index_spec spec;
    spec.sequences = {{4, 301}, {2, 17}};
    spec.hi = s.hi, spec.di = s.di, spec.block = s.block, spec.topk = s.topk;
    expect_plain(index_batch(spec));
  }
}

TEST(index, forced_block_settings_follow_the_plain_formulas) {
  for (const std::int32_t local : {0, 1, 3})
    for (const std::int32_t init : {0, 1, 2}) {
      index_spec spec = ragged();
      spec.topk = 5, spec.local_blocks = local, spec.init_blocks = init;
      expect_plain(index_batch(spec));
    }
}

TEST(index, forced_blocks_need_no_score_and_count_among_k) {
  const std::vector<double> scores{-5, 9, 1, 7, 3, 8, -9};
  EXPECT_EQ(select_simple(scores, 3, 0, 0), (ids{1, 3, 5}));
  EXPECT_EQ(select_simple(scores, 3, 1, 0), (ids{1, 5, 6}));
  EXPECT_EQ(select_simple(scores, 4, 3, 0), (ids{1, 4, 5, 6}));
  EXPECT_EQ(select_simple(scores, 3, 0, 1), (ids{0, 1, 5}));
  EXPECT_EQ(select_simple(scores, 4, 1, 2), (ids{0, 1, 5, 6}));
  EXPECT_EQ(select_simple(scores, 5, 3, 2), (ids{0, 1, 4, 5, 6}));
}

TEST(index, rows_of_few_blocks_take_all_of_them_whatever_the_scores) {
  EXPECT_EQ(select_simple({nan, -5, -inf}, 3, 0, 0), (ids{0, 1, 2}));
  EXPECT_EQ(select_simple({nan, -5, -inf}, 5, 1, 1), (ids{0, 1, 2, -1, -1}));
  EXPECT_EQ(select_simple({nan}, 2, 0, 0), (ids{0, -1}));
}

TEST(index, nan_and_infinite_scores_rank_as_select_has_it) {
  EXPECT_EQ(select_simple({nan, 1, inf, -inf, 2}, 2, 0, 0), (ids{2, 4}));
  EXPECT_EQ(select_simple({nan, -inf, -inf, nan, 2}, 3, 0, 0), (ids{0, 1, 4}));
  EXPECT_EQ(select_simple({inf, 2e30, inf, 1e30, inf}, 2, 0, 0), (ids{0, 2}));
}

TEST(index, exact_ties_go_to_the_lower_ids) {
  EXPECT_EQ(select_simple(std::vector<double>(9, -3), 4, 1, 0), (ids{0, 1, 2, 8}));
  EXPECT_EQ(select_simple({1, 2, 2, 2, 3, 2}, 3, 0, 0), (ids{1, 2, 4}));
}

TEST(index, negative_zero_ties_with_zero) {
  index_spec spec = simple(4);
  spec.scales = 2, spec.topk = 2, spec.local_blocks = 0;
  index_batch b(spec);
  set_scores(b, {0, 0, 0, 0});
  for (std::int64_t c = 0; c < spec.di; ++c) b.set_query(0, 0, c, 0);
  for (const std::int64_t j : {0, 1, 4, 5}) b.set_key_scale(0, j, -1);
  EXPECT_EQ(index_all(b)[0].ids, (ids{0, 1}));
}

TEST(index, nan_that_propagates_ranks_its_block_last) {
  index_spec spec = simple(4);
  spec.topk = 2, spec.local_blocks = 0;
  index_batch b(spec);
  set_scores(b, {9, 1, 2, 3});
  b.set_key(0, 1, 0, nan);  // the second key of the best block
  interval_model model = both_terms;
  EXPECT_EQ(index_all(b, model)[0].ids, (ids{0, 3}));
  model.propagate_nan = true;
  const auto row = index_all(b, model)[0];
  EXPECT_EQ(row.ids, (ids{2, 3}));
  EXPECT_TRUE(legal(row, b.inputs().p));
}

TEST(index, a_partly_visible_last_block_competes_with_what_is_visible) {
  index_spec spec = simple(4);
  spec.topk = 1, spec.local_blocks = 0;
  index_batch b(spec);
  set_scores(b, {1, 2, 3, 0});
  b.set_key(0, 7, 0, 5);
  EXPECT_EQ(index_all(b)[0].ids, (ids{3}));  // by its last key
  const std::int32_t shorter = 7;            // which is now past the end
  auto in = b.inputs();
  in.kv_lens.data = &shorter;
  EXPECT_EQ(index(in, b.all_rows(), both_terms, every_term)[0].ids, (ids{2}));
}

TEST(index, empty_rows_have_no_ids_and_no_mass) {
  const index_batch b(ragged());
  std::size_t empty = 0;
  for (const auto& row : index_all(b)) {
    const bool is_empty = row.row == 3 || row.row == 11 || row.row == 12;
    EXPECT_EQ(row.lse.n == 0, is_empty) << row.row;
    if (!is_empty) continue;
    ++empty;
    EXPECT_EQ(row.ids, ids(4, -1));
    EXPECT_TRUE(row.scores.value.empty());
    EXPECT_EQ(row.lse.lse, -inf);
    EXPECT_EQ(row.lse.m, 0);
    EXPECT_EQ(row.lse.eta_bar, 0);
  }
  EXPECT_EQ(empty, 3u * 2);
  index_spec none;
  EXPECT_TRUE(index_all(index_batch(none)).empty());
}

TEST(index, rows_of_a_single_key_have_its_score_as_lse) {
  index_spec spec;
  spec.sequences = {{1, 1}, {3, 3}};
  const index_batch b(spec);
  for (const auto& row : index(b.inputs(), std::vector<std::int64_t>{0, 1}, both_terms, every_term)) {
    EXPECT_EQ(row.ids, (ids{0, -1, -1, -1}));
    EXPECT_EQ(row.lse.n, 1);
    EXPECT_EQ(row.lse.lse, row.scores.value[0]);
    EXPECT_EQ(row.lse.m, row.scores.value[0]);
  }
}

TEST(index, lse_of_all_blocks_is_that_of_all_visible_keys) {
  index_spec spec;
  spec.sequences = {{6, 300}};
  spec.topk = 19;
  const index_batch b(spec);
  for (const auto& row : index_all(b)) {
    long double sum = 0;
    const auto keys = plain_index_keys(b, row.row, row.head);
    for (const auto& key : keys) sum += std::exp(key.score);
    EXPECT_EQ(row.lse.n, std::ssize(keys));
    EXPECT_NEAR(row.lse.lse, static_cast<double>(std::log(sum)), 1e-13);
  }
}

TEST(index, each_term_of_the_score_error_acts_alone) {
  const index_batch b(ragged());
  for (int term = 0; term < 4; ++term) {
    score_error err;
    double* const terms[] = {&err.per_magnitude, &err.per_score, &err.constant, &err.per_size};
    *terms[term] = 1e-3;
    const auto rows = index(b.inputs(), b.all_rows(), both_terms, err);
    for (const auto& row : rows) expect_plain_lse(b, row.lse, row.ids, err, 1e-13);
    EXPECT_TRUE(std::ranges::any_of(rows, [](const auto& r) { return r.lse.eta_bar > 0; })) << term;
  }
}

// ids of somebody else: form lenient, [H,T,k] in memory.
TEST(index, lse_of_given_ids_is_that_of_their_set) {
  const index_batch b(ragged());
  const std::int64_t rows = b.rows(), slots = 6;
  std::vector<std::int32_t> given(static_cast<std::size_t>(rows * 2 * slots));
  tensor_view view{given.data(), {i32, {rows, 2, slots}, {slots, rows * slots, 1}}};
  std::uint64_t at = 0;
  std::vector<ids> sets;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t h = 0; h < 2; ++h) {
      const std::int64_t visible = visible_blocks(b.place(row), 16);
      ids set;
      for (std::int64_t s = 0; s < slots; ++s) {
        const auto id = static_cast<std::int32_t>(std::lround(3 * hashed_normal(2, 41, at++)) + 3);
        given[static_cast<std::size_t>(view.offset(row, h, s))] = id;
        if (id >= 0 && id < visible) set.push_back(id);
      }
      sets.push_back(set);
    }
  const auto got = index_lse(b.inputs(), view, b.all_rows(), every_term);
  ASSERT_EQ(got.size(), sets.size());
  std::size_t repeated = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    expect_plain_lse(b, got[i], sets[i], every_term, 1e-13);
    std::ranges::sort(sets[i]);
    repeated += std::ranges::adjacent_find(sets[i]) != sets[i].end() ? 1 : 0;
  }
  EXPECT_GT(repeated, 0u);
}

TEST(index, lse_of_its_own_ids_given_back_is_the_same_to_the_bit) {
  const index_batch b(ragged());
  const auto rows = index_all(b);
  std::vector<std::int32_t> given;
  std::vector<index_lse_row> want;
  for (const auto& row : rows) {
    given.insert(given.end(), row.ids.begin(), row.ids.end());
    want.push_back(row.lse);
  }
  const tensor_view view{given.data(), packed(i32, {b.rows(), 2, 4})};
  expect_same_bits(index_lse(b.inputs(), view, b.all_rows(), every_term), want);
}

// Scores moved by as much as they may be, and blocks selected by them: legal, and the lse within its bound.
TEST(index, honest_errors_stay_within_intervals_and_bound) {
  index_spec spec;
  spec.sequences = {{6, 800}};
  const index_batch b(spec);
  const problem& p = b.inputs().p;
  const interval_model model{0.02, 0.01};  // large enough to change selections
  const score_error err{0.02, 0.01, 0, 0, 0, 0, 0, 0};
  std::uint64_t at = 0;
  std::size_t other_sets = 0;
  for (const auto& row : index(b.inputs(), b.all_rows(), model, err))
    for (int perturbation = 0; perturbation < 10; ++perturbation) {
      std::vector<double> scores(row.scores.value.size(), -inf);
      long double moved = 0;
      for (const auto& key : plain_index_keys(b, row.row, row.head)) {
        const double s = static_cast<double>(key.score + (hashed_normal(4, 51, at++) < 0 ? -1 : 1) * key.delta(model));
        auto& block = scores[static_cast<std::size_t>(key.block)];
        block = std::max(block, s);
        if (std::ranges::find(row.ids, key.block) != row.ids.end()) moved += std::exp(static_cast<long double>(s));
      }
      index_row honest = row;
      honest.ids = select_row(scores, std::ssize(scores), p.topk, p.local_blocks, p.init_blocks);
      EXPECT_TRUE(legal(honest, p));
      other_sets += honest.ids == row.ids ? 0 : 1;
      EXPECT_LE(std::abs(static_cast<double>(std::log(moved)) - row.lse.lse), std::log1p(row.lse.eta_bar));
    }
  EXPECT_GT(other_sets, 10u);
}

TEST(index, a_block_that_no_honest_ranking_selects_is_not_legal) {
  index_spec spec = simple(5);
  spec.topk = 2, spec.local_blocks = 0;
  index_batch b(spec);
  set_scores(b, {1, 5, 3, 4, 2});
  auto row = index_all(b)[0];
  EXPECT_EQ(row.ids, (ids{1, 3}));
  row.ids = {1, 2};
  EXPECT_FALSE(legal(row, b.inputs().p));
  row.ids = {3, -1};
  EXPECT_FALSE(legal(row, b.inputs().p));
}

TEST(index, scores_that_are_not_finite_leave_the_lse_without_a_bound) {
  const auto lse_of = [](const std::vector<double>& scores) {
    index_spec spec = simple(scores.size());
    spec.topk = 8;
    index_batch b(spec);
    set_scores(b, scores);
    return index_all(b)[0].lse;
  };
  const auto with_nan = lse_of({1, nan, 2});
  EXPECT_EQ(with_nan.eta_bar, inf);
  EXPECT_NEAR(with_nan.lse, std::log(std::exp(1.0) + std::exp(-9.0) + std::exp(2.0) + std::exp(-8.0)), 1e-14);
  EXPECT_EQ(with_nan.n, 6);
  EXPECT_EQ(lse_of({1, inf, nan}).lse, inf);
  EXPECT_EQ(lse_of({1, -inf}).eta_bar, inf);
  EXPECT_EQ(lse_of({nan, -inf}).lse, -inf);
}

TEST(index, endless_chains_give_huge_gauges_and_no_nan) {
  const index_batch b(ragged());
  score_error err;
  err.per_magnitude = inf;
  for (const auto& row : index(b.inputs(), b.all_rows(), {inf, 0}, err)) {
    EXPECT_EQ(row.lse.eta_bar > 1e90, row.lse.n > 0);
    EXPECT_FALSE(std::isnan(row.lse.eta_bar));
  }
}

TEST(index, chunks_single_tokens_and_pages_equal_one_shot) {
  index_spec spec;
  spec.sequences = {{150, 150}};
  const auto want = index_all(index_batch(spec));
  for (const std::int64_t chunk : {1, 37, 64}) {
    std::vector<index_row> got;
    for (std::int64_t first = 0; first < 150; first += chunk) {
      const std::int64_t end = std::min<std::int64_t>(150, first + chunk);
      spec.sequences = {{end - first, end}};  // values go with positions
      spec.layout = chunk == 37 ? page_layout::paged : page_layout::contiguous;
      spec.page_order = 3;
      for (auto& row : index_all(index_batch(spec))) {
        for (auto* at : {&row.row, &row.scores.row, &row.lse.row}) *at += first;
        got.push_back(std::move(row));
      }
    }
    expect_same_bits(got, want);
  }
}

TEST(index, the_order_of_the_batch_and_of_its_heads_changes_nothing) {
  index_spec spec;
  spec.sequences = {{4, 90}, {3, 133}};
  const index_batch b(spec);
  const auto want = index_all(b);
  spec.sequences = {{3, 133}, {4, 90}};
  spec.labels = {1, 0};
  index_batch other(spec);
  for (std::int64_t row = 0; row < 7; ++row)
    for (std::int64_t c = 0; c < 16; ++c) {
      const double first = other.query(row, 0, c);
      other.set_query(row, 0, c, other.query(row, 1, c));
      other.set_query(row, 1, c, first);
    }
  const auto got = index_all(other);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const std::size_t row = i / 2, from = row < 3 ? row + 4 : row - 3, head = 1 - i % 2;
    const auto& same = want[from * 2 + head];
    EXPECT_EQ(got[i].ids, same.ids);
    EXPECT_EQ(got[i].scores.value, same.scores.value);
    EXPECT_EQ(got[i].lse.lse, same.lse.lse);
    EXPECT_EQ(got[i].lse.eta_bar, same.lse.eta_bar);
  }
}

TEST(index, threads_and_repeats_change_no_bit) {
  index_spec spec;
  spec.sequences = {{2, 20000}, {20, 900}};
  spec.di = 32, spec.block = 32, spec.topk = 16, spec.type = bf16;
  const index_batch b(spec);
  omp_set_num_threads(1);
  const auto one = index_all(b);
  for (const int threads : {1, 2, 3, 3}) {
    omp_set_num_threads(threads);
    expect_same_bits(index_all(b), one);
  }
  omp_set_num_threads(omp_get_num_procs());
}

TEST(index, contradicting_shapes_and_invalid_problems_are_refused) {
  const index_batch b(ragged());
  const auto refused = [&](auto change) {
    auto in = b.inputs();
    change(in);
    EXPECT_THROW(index(in, b.all_rows(), both_terms, every_term), suite_error);
  };
  refused([](auto& in) { in.p.topk = 0; });
  refused([](auto& in) { in.p.init_blocks = 4; });
  refused([](auto& in) { in.q_idx.desc.shape[1] = 3; });
  EXPECT_THROW(index(b.inputs(), std::vector<std::int64_t>{18}, both_terms, every_term), suite_error);
  const std::vector<std::int32_t> given(static_cast<std::size_t>(b.rows() * 3), -1);
  const tensor_view view{given.data(), packed(i32, {b.rows(), 3, 1})};
  EXPECT_THROW(index_lse(b.inputs(), view, b.all_rows(), every_term), suite_error);
}

}  // namespace
}  // namespace msabench::reference

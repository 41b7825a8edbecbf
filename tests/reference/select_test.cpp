// SPDX-License-Identifier: Apache-2.0
#include "reference/select.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "batch.h"
#include "core/error.h"

namespace msabench::reference {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
using ids = std::vector<std::int32_t>;

ids pick(const std::vector<double>& scores, std::int64_t topk, std::int64_t local = 0, std::int64_t init = 0) {
  return select_row(scores, std::ssize(scores), topk, local, init);
}

// The contract's sentence, by a whole sort.
ids pick_by_sorting(std::vector<double> scores, std::int64_t topk, std::int64_t local, std::int64_t init) {
  const std::int64_t own = std::ssize(scores) - 1;
  for (double& s : scores)
    if (std::isnan(s)) s = -inf;
  ids order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::int32_t a, std::int32_t b) {
    const bool fa = forced(a, own, local, init), fb = forced(b, own, local, init);
    if (fa != fb) return fa;
    if (fa && fb) return a < b;
    return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
  });
  order.resize(std::min<std::size_t>(order.size(), static_cast<std::size_t>(topk)));
  std::ranges::sort(order);
  order.resize(static_cast<std::size_t>(topk), -1);
  return order;
}

TEST(select, forced_blocks_are_the_first_and_the_nearest) {
  EXPECT_TRUE(forced(9, 9, 1, 0));
  EXPECT_FALSE(forced(8, 9, 1, 0));
  EXPECT_TRUE(forced(7, 9, 3, 0));
  EXPECT_FALSE(forced(9, 9, 0, 0));
  EXPECT_TRUE(forced(1, 9, 0, 2));
  EXPECT_FALSE(forced(2, 9, 0, 2));
  EXPECT_TRUE(forced(0, 0, 1, 1));
}

TEST(select, few_visible_blocks_are_all_taken_whatever_their_scores) {
  EXPECT_EQ(pick({}, 3), (ids{-1, -1, -1}));
  EXPECT_EQ(pick({nan}, 3), (ids{0, -1, -1}));
  EXPECT_EQ(pick({-inf, 5, nan}, 3), (ids{0, 1, 2}));
  EXPECT_EQ(pick({-inf, 5, nan}, 4, 1, 1), (ids{0, 1, 2, -1}));
}

TEST(select, best_of_the_rest_fill_up_to_k) {
  EXPECT_EQ(pick({3, 9, 1, 7, 5}, 2), (ids{1, 3}));
  EXPECT_EQ(pick({3, 9, 1, 7, 0}, 2, 1), (ids{1, 4}));
  EXPECT_EQ(pick({0, 9, 1, 7, 0}, 3, 1, 1), (ids{0, 1, 4}));
  EXPECT_EQ(pick({0, 9, 1, 7, 0}, 3, 3), (ids{2, 3, 4}));
  EXPECT_EQ(pick({0, 0, 1, 7, 0}, 3, 1, 2), (ids{0, 1, 4}));
}

TEST(select, scores_of_forced_blocks_do_not_count) {
  EXPECT_EQ(pick({nan, 1, 2, 3, -inf}, 3, 1, 1), (ids{0, 3, 4}));
  EXPECT_EQ(pick({inf, 1, 2, 3, inf}, 3, 1, 1), (ids{0, 3, 4}));
}

TEST(select, overlapping_forced_blocks_count_once) {
  // own = 3, L = 3 and I = 2 share block 1.
  EXPECT_EQ(select_row(std::vector<double>{0, 0, 0, 0}, 4, 5, 3, 2), (ids{0, 1, 2, 3, -1}));
  EXPECT_EQ(select_row(std::vector<double>(6, 0.0), 6, 5, 3, 2), (ids{0, 1, 3, 4, 5}));
}

TEST(select, nan_ranks_as_minus_infinity_and_both_stay_eligible) {
  EXPECT_EQ(pick({nan, 1, -5, 2}, 2), (ids{1, 3}));
  EXPECT_EQ(pick({nan, nan, -5, nan}, 2), (ids{0, 2}));
  EXPECT_EQ(pick({-inf, nan, -inf, nan, 1}, 3), (ids{0, 1, 4}));
  EXPECT_EQ(pick({nan, -inf, 1, -std::numeric_limits<double>::max()}, 2), (ids{2, 3}));
}

TEST(select, infinite_and_huge_scores_rank_naturally) {
  EXPECT_EQ(pick({2e30, inf, 1e30, 3.4e38, inf}, 3), (ids{1, 3, 4}));
  EXPECT_EQ(pick({inf, inf, inf, 0}, 2), (ids{0, 1}));
  EXPECT_EQ(pick({2e30, inf, 1e30, 3.4e38, -2e30}, 2, 1), (ids{1, 4}));
}

TEST(select, negative_zero_equals_zero_and_ties_go_to_lower_ids) {
  EXPECT_EQ(pick({-0.0, 0.0, -0.0, 0.0}, 2), (ids{0, 1}));
  EXPECT_EQ(pick({0.0, -0.0, 0.0, 1}, 2), (ids{0, 3}));
  EXPECT_EQ(pick(std::vector<double>(20, -3.0), 4, 1), (ids{0, 1, 2, 19}));
  EXPECT_EQ(pick({1, 2, 2, 2, 3, 2}, 3), (ids{1, 2, 4}));
}

TEST(select, equals_a_whole_sort_on_few_valued_scores) {
  std::uint64_t at = 0;
  for (const std::int64_t visible : {1, 2, 5, 16, 17, 40, 200})
    for (const std::int64_t topk : {1, 2, 4, 16})
      for (const std::int64_t local : {0, 1, 3})
        for (const std::int64_t init : {0, 1, 2}) {
          if (local + init > topk) continue;
          std::vector<double> scores;
          for (std::int64_t b = 0; b < visible; ++b) {
            const double x = std::round(2 * testing::hashed_normal(3, 1, at++));
            scores.push_back(x == 3 ? nan : x == 4 ? inf : x == -4 ? -inf : x);
          }
          const ids got = pick(scores, topk, local, init);
          EXPECT_EQ(got, pick_by_sorting(scores, topk, local, init)) << visible << " " << topk << " " << local << init;
          EXPECT_EQ(std::ranges::count_if(got, [](std::int32_t b) { return b >= 0; }), std::min(topk, visible));
        }
}

TEST(select, invalid_problems_are_refused) {
  const std::vector<double> scores(8, 0.0);
  EXPECT_THROW(select_row(scores, 8, 0, 0, 0), suite_error);
  EXPECT_THROW(select_row(scores, 8, 3, 2, 2), suite_error);
  EXPECT_THROW(select_row(scores, 8, 3, -1, 0), suite_error);
  EXPECT_THROW(select_row(scores, 9, 3, 1, 0), suite_error);
}

// A ragged batch with an empty sequence, a padding row and a prefix; scores past the visible blocks are NaN.
class select_batch {
 public:
  explicit select_batch(dtype type) {
    in.p.hkv = 3, in.p.block = 16, in.p.topk = 4, in.p.local_blocks = 1, in.p.init_blocks = 1;
    in.cu_seqlens_q = {cu_.data(), packed(i32, {std::ssize(cu_)})};
    in.kv_lens = {lens_.data(), packed(i32, {std::ssize(lens_)})};
    // Strided as [T, H, blocks], to see that the view's strides are followed.
    in.scores = {nullptr, packed(type, {3, 11, 13})};
    in.scores.desc.strides = {13, 39, 1};
    storage_.resize(static_cast<std::size_t>(3 * 11 * 13 * size_bytes(type)));
    const row_map map(in.cu_seqlens_q, in.kv_lens);
    for (std::int64_t head = 0; head < 3; ++head)
      for (std::int64_t row = 0; row < 11; ++row)
        for (std::int64_t b = 0; b < 13; ++b) {
          const bool visible = row < map.total_rows() && b < map.visible_blocks(row, 16);
          const double x = testing::hashed_normal(7, 2, static_cast<std::uint64_t>((head * 11 + row) * 13 + b));
          store(storage_.data(), type, in.scores.offset(head, row, b), visible ? x : nan);
        }
    in.scores.data = storage_.data();
  }

  select_inputs in;

 private:
  std::vector<std::int32_t> cu_{0, 0, 6, 7, 10}, lens_{0, 201, 0, 40};
  std::vector<std::byte> storage_;
};

TEST(select, ids_of_a_batch_are_those_of_its_rows) {
  for (const dtype type : {fp32, fp64}) {
    const select_batch batch(type);
    const row_map map(batch.in.cu_seqlens_q, batch.in.kv_lens);
    const std::vector<std::int64_t> rows{9, 0, 5, 6, 3};
    const ids got = select(batch.in, rows);
    ASSERT_EQ(got.size(), rows.size() * 3 * 4);
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (std::int64_t head = 0; head < 3; ++head) {
        std::vector<double> scores;
        for (std::int64_t b = 0; b < map.visible_blocks(rows[i], 16); ++b)
          scores.push_back(batch.in.scores.at(head, rows[i], b));
        const auto begin = got.begin() + static_cast<std::ptrdiff_t>(i * 12) + head * 4;
        EXPECT_EQ(ids(begin, begin + 4), pick_by_sorting(scores, 4, 1, 1)) << rows[i] << " " << head;
      }
  }
}

TEST(select, padding_rows_have_no_ids) {
  const select_batch batch(fp32);
  EXPECT_EQ(select(batch.in, std::vector<std::int64_t>{6}), ids(12, -1));
}

TEST(select, heads_and_rows_choose_for_themselves) {
  const select_batch batch(fp32);
  const ids got = select(batch.in, std::vector<std::int64_t>{0, 1, 2, 3, 4, 5});
  std::set<ids> sets;
  for (auto at = got.begin(); at != got.end(); at += 4) sets.emplace(at, at + 4);
  EXPECT_GT(sets.size(), 10u);
}

TEST(select, threads_do_not_matter) {
  const select_batch batch(fp32);
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < 30000; ++i) rows.push_back(i % 10);  // enough work for threads to be started
  omp_set_num_threads(1);
  const ids one = select(batch.in, rows);
  for (const int threads : {2, 3}) {
    omp_set_num_threads(threads);
    EXPECT_EQ(select(batch.in, rows), one);
  }
  omp_set_num_threads(omp_get_num_procs());
}

TEST(select, rows_and_scores_outside_the_batch_are_refused) {
  select_batch batch(fp32);
  EXPECT_THROW(select(batch.in, std::vector<std::int64_t>{10}), suite_error);
  batch.in.scores.desc.shape[2] = 12;
  EXPECT_THROW(select(batch.in, std::vector<std::int64_t>{5}), suite_error);
}

}  // namespace
}  // namespace msabench::reference

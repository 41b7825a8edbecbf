// SPDX-License-Identifier: Apache-2.0
#include "judge/select_row_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "numbers.h"
#include "reference/select.h"
#include "select_world.h"

namespace msabench::judge::test {
namespace {

using list = std::vector<std::int32_t>;
const double nan_score = std::nan("");

selection_rules rules(std::int64_t topk, std::int64_t local = 1, std::int64_t init = 0) {
  return {.block = 16, .topk = topk, .local_blocks = local, .init_blocks = init};
}

bool accepts(const list& ids, const std::vector<double>& scores, const selection_rules& r) {
  return !check_selection(ids, scores, std::ssize(scores), r);
}

TEST(selection, set_must_hold_the_best) {
  const std::vector<double> s{5, 1, 4, 2, 3, 0};
  EXPECT_TRUE(accepts({0, 2, 5}, s, rules(3)));
  const auto f = check_selection(list{0, 3, 5}, s, 6, rules(3));
  EXPECT_EQ(f.what, selection_fault::kind::worse_chosen);
  EXPECT_EQ(f.text, "block 3 (score 2) chosen, block 2 (score 4) left out");
  EXPECT_EQ(f.excess, 2);
}

TEST(selection, structure) {
  const std::vector<double> s{5, 1, 4, 2, 3, 0};
  EXPECT_EQ(check_selection(list{0, 2, 2}, s, 6, rules(3)).text, "block 2 selected twice");
  EXPECT_EQ(check_selection(list{0, 2, 6}, s, 6, rules(3)).text, "block 6 selected, of 6 visible ones");
  EXPECT_EQ(check_selection(list{-7, 2, 5}, s, 6, rules(3)).text, "block -7 selected, of 6 visible ones");
  EXPECT_EQ(check_selection(list{2, 5, -1}, s, 6, rules(3)).text, "2 blocks selected instead of 3");
  EXPECT_EQ(check_selection(list{-1, 2, 5}, s, 6, rules(3)).text, "id 2 stands behind a -1");
  EXPECT_EQ(check_selection(list{0, 2, 4}, s, 6, rules(3)).text, "forced block 5 left out");
  EXPECT_EQ(check_selection(list{2, 0, 5}, s, 6, rules(3)).text,
            "block 2 stands before block 0: ids are not ascending");
}

TEST(selection, forced_blocks_need_no_score) {
  EXPECT_TRUE(accepts({0, 3, 5}, {-9, 1, 2, 8, 3, -7}, rules(3, 1, 1)));
  // All forced: nothing to compare.
  EXPECT_TRUE(accepts({0, 4, 5}, {-9, 1, 2, 8, 3, -7}, rules(3, 2, 1)));
  EXPECT_FALSE(accepts({0, 3, 4}, {-9, 1, 2, 8, 3, -7}, rules(3, 2, 1)));
}

TEST(selection, fewer_blocks_than_k_means_all) {
  EXPECT_TRUE(accepts({0, 1, -1, -1}, {nan_score, -infinity}, rules(4)));
  EXPECT_FALSE(accepts({1, -1, -1, -1}, {1, 2}, rules(4)));
  EXPECT_TRUE(accepts({0, 1, 2, 3}, {1, 2, 3, 4}, rules(4)));
}

TEST(selection, ties_are_free_unless_promised) {
  const std::vector<double> s{1, 1, 1, 1, 1, 1};
  auto r = rules(3);
  EXPECT_TRUE(accepts({0, 1, 5}, s, r));
  EXPECT_TRUE(accepts({3, 4, 5}, s, r));
  r.ties_low_id = true;
  EXPECT_TRUE(accepts({0, 1, 5}, s, r));
  const auto f = check_selection(list{1, 2, 5}, s, 6, r);
  EXPECT_EQ(f.what, selection_fault::kind::tie);
  EXPECT_EQ(f.text, "block 2 chosen, block 0 with the same score 1 left out, though the lower id is promised");
}

TEST(selection, minus_zero_equals_zero_and_nan_equals_minus_infinity) {
  auto r = rules(2, 0);
  EXPECT_TRUE(accepts({0, 2}, {-0.0, 0.0, 0.0, -1}, r));
  EXPECT_TRUE(accepts({1, 2}, {-0.0, 0.0, 0.0, -1}, r));
  EXPECT_TRUE(accepts({1, 3}, {nan_score, 2, -infinity, 3}, r));
  EXPECT_FALSE(accepts({0, 3}, {nan_score, 2, -infinity, 3}, r));
  EXPECT_TRUE(accepts({0, 3}, {nan_score, nan_score, -infinity, 3}, r));
  EXPECT_TRUE(accepts({2, 3}, {nan_score, nan_score, -infinity, 3}, r));
  r.ties_low_id = true;
  EXPECT_TRUE(accepts({0, 3}, {nan_score, nan_score, -infinity, 3}, r));
  EXPECT_FALSE(accepts({2, 3}, {nan_score, nan_score, -infinity, 3}, r));
}

TEST(selection, infinite_and_huge_scores_rank_naturally) {
  EXPECT_TRUE(accepts({1, 3}, {2e30, infinity, 1e30, 0}, rules(2)));
  EXPECT_FALSE(accepts({0, 3}, {2e30, infinity, 1e30, 0}, rules(2)));
  EXPECT_TRUE(accepts({1, 2}, {2e30, infinity, infinity, infinity}, rules(2, 0)));
}

TEST(selection, orders) {
  const std::vector<double> s{5, 1, 4, 2, 3, 0};
  auto r = rules(3);
  r.order = id_order::any;
  EXPECT_TRUE(accepts({5, 0, 2}, s, r));
  r.order = id_order::local_last;
  EXPECT_TRUE(accepts({2, 0, 5}, s, r));
  EXPECT_FALSE(accepts({5, 0, 2}, s, r));
  r.order = id_order::score;
  EXPECT_TRUE(accepts({5, 0, 2}, s, r));
  EXPECT_TRUE(accepts({0, 2, 5}, s, r));
  EXPECT_FALSE(accepts({2, 0, 5}, s, r));
}

TEST(selection, a_declared_order_is_a_promise_and_a_wrong_set_is_graver) {
  const std::vector<double> s{5, 1, 4, 2, 3, 0};
  auto r = rules(3);
  const auto what = [&](const list& ids) { return check_selection(ids, s, 6, r).what; };
  EXPECT_EQ(what({2, 0, 5}), selection_fault::kind::structure) << "ascending is the contract's";
  r.order = id_order::local_last;
  EXPECT_EQ(what({5, 0, 2}), selection_fault::kind::order);
  EXPECT_EQ(what({5, 0, 1}), selection_fault::kind::worse_chosen);
  r.order = id_order::score;
  EXPECT_EQ(what({2, 0, 5}), selection_fault::kind::order);
}

TEST(selection, quantised_ranking_widens_the_intervals) {
  const std::vector<double> s{0, 100, 50, 50.9, 1, 7};
  auto r = rules(2);
  EXPECT_FALSE(accepts({2, 5}, std::vector<double>{0, 49, 50, 50.9, 100, 7}, r));
  r.topk = 3;
  EXPECT_FALSE(accepts({1, 2, 5}, s, r));
  r.rank_step = 0.01;
  EXPECT_TRUE(accepts({1, 2, 5}, s, r));
  const auto f = check_selection(list{1, 4, 5}, s, 6, r);
  EXPECT_EQ(f.what, selection_fault::kind::worse_chosen);
  EXPECT_DOUBLE_EQ(f.resolution, 3);
  EXPECT_NEAR(f.excess, 50.9 - 1 - 3, 1e-12);
}

// Sound and complete: exactly the sets that some order of equal scores could give are accepted.
TEST(selection, agrees_with_enumeration) {
  std::mt19937 gen(5);
  for (int trial = 0; trial < 300; ++trial) {
    const std::int64_t blocks = 1 + gen() % 7, topk = 1 + gen() % 4, local = gen() % 2, init = topk > 1 ? gen() % 2 : 0;
    std::vector<double> s;
    for (std::int64_t b = 0; b < blocks; ++b) {
      const double values[] = {0, -0.0, 1, 2, -infinity, nan_score, infinity};
      s.push_back(values[gen() % 7]);
    }
    const auto rank = [&](std::int64_t b) { return std::isnan(s[b]) ? -infinity : s[b]; };
    for (std::uint32_t mask = 0; mask < (1U << blocks); ++mask) {
      list ids;
      bool best = true;
      for (std::int64_t b = 0; b < blocks; ++b)
        if ((mask >> b & 1) != 0) ids.push_back(static_cast<std::int32_t>(b));
      if (std::ssize(ids) > topk) continue;
      if (std::ssize(ids) != std::min(blocks, topk)) best = false;
      for (std::int64_t b = 0; b < blocks; ++b) {
        const bool in = (mask >> b & 1) != 0, forced = reference::forced(b, blocks - 1, local, init);
        if (forced && !in) best = false;
        for (std::int64_t other = 0; other < blocks; ++other)
          if (in && !forced && (mask >> other & 1) == 0 && rank(other) > rank(b)) best = false;
      }
      ids.resize(static_cast<std::size_t>(topk), -1);
      EXPECT_EQ(accepts(ids, s, rules(topk, local, init)), best) << "trial " << trial << " mask " << mask;
    }
  }
}

select_world two_heads() {
  std::vector<std::vector<double>> scores;
  std::mt19937 gen(8);
  const std::vector<std::int64_t> visible{0, 1, 3, 8, 20, 33};
  for (const auto n : visible)
    for (int h = 0; h < 2; ++h) {
      std::vector<double> row;
      for (std::int64_t b = 0; b < n; ++b) row.push_back((static_cast<double>(gen() % 20001) - 10000) / 64);
      scores.push_back(row);
    }
  return {visible, 2, 4, scores};
}

TEST(select_checks, the_oracle_passes_in_both_layouts) {
  auto w = two_heads();
  for (const auto& c : w.checks()) EXPECT_TRUE(c.passed) << c.id << " " << c.named;
  tensor turned(i32, {2, 6, 4});
  for (std::int64_t row = 0; row < 6; ++row)
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t i = 0; i < 4; ++i)
        turned.set_int(turned.view().offset(h, row, i), w.ids.view().int_at(row, h, i));
  w.ids = turned;
  w.delivers.out_id_layout = id_layout::htk;
  for (const auto& c : w.checks()) EXPECT_TRUE(c.passed) << c.id << " " << c.named;
}

TEST(select_checks, the_line_names_row_head_and_both_blocks) {
  auto w = two_heads();
  w.set_ids(4, 1, {0, 1, 2, 19});
  const auto checks = w.checks();
  const auto k5 = find_check(checks, "K5");
  EXPECT_FALSE(k5.passed);
  EXPECT_EQ(k5.kind, fail_kind::selection);
  EXPECT_EQ(k5.worst.index, (std::vector<std::int64_t>{4, 1}));
  EXPECT_NE(k5.named.find("chosen"), std::string::npos);
  EXPECT_NE(k5.named.find("left out"), std::string::npos);
  EXPECT_TRUE(std::isfinite(k5.value));
}

TEST(select_checks, structure_is_checked_on_rows_that_the_oracle_does_not_sample) {
  auto w = two_heads();
  w.set_ids(4, 1, {3, 3, 4, 19});
  const std::int64_t rows[] = {1, 5};
  const auto checks = expect(w.subject(), rows)->check(w.outputs(), 0, 0);
  EXPECT_EQ(find_check(checks, "K5").named, "block 3 selected twice");
}

TEST(select_checks, unwritten_slots_break_the_contract) {
  auto w = two_heads();
  w.set_ids(2, 1, {0, 1, 2, 0x7F7F7F7F});
  const auto checks = w.checks();
  EXPECT_EQ(find_check(checks, "K0").kind, fail_kind::contract);
  EXPECT_EQ(find_check(checks, "K0").worst.index, (std::vector<std::int64_t>{2, 1, 3}));
}

TEST(select_checks, empty_rows_are_minus_one) {
  auto w = two_heads();
  w.set_ids(0, 0, {0, -1, -1, -1});
  EXPECT_EQ(find_check(w.checks(), "K0").kind, fail_kind::selection);
  w.delivers.empty_row = empty_form::undefined;
  EXPECT_TRUE(find_check(w.checks(), "K0").passed);
}

TEST(select_checks, infinite_margins_stay_finite_in_reports) {
  select_world w({3}, 1, 2, {{infinity, -infinity, 0}});
  w.set_ids(0, 0, {1, 2});
  const auto checks = w.checks();
  const auto k5 = find_check(checks, "K5");
  EXPECT_FALSE(k5.passed);
  EXPECT_TRUE(std::isfinite(k5.value));
}

}  // namespace
}  // namespace msabench::judge::test

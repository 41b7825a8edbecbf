// SPDX-License-Identifier: Apache-2.0
// `index`: sets that honest scores may select, and lse_idx on the set that came back.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "index_world.h"
#include "judge/index_branch.h"
#include "judge/select_row_check.h"
#include "numbers.h"

namespace msabench::judge::test {
namespace {

// Sound and complete: a set is accepted exactly if some scores within the intervals select it.
TEST(selection_intervals, agree_with_enumeration) {
  std::mt19937 gen(9);
  for (int trial = 0; trial < 400; ++trial) {
    const std::int64_t blocks = 1 + gen() % 7, topk = 1 + gen() % 4, local = gen() % 2;
    std::vector<double> value, lo, hi;
    for (std::int64_t b = 0; b < blocks; ++b) {
      const double s = static_cast<double>(gen() % 9) / 4, width = static_cast<double>(gen() % 4) / 4;
      value.push_back(gen() % 11 == 0 ? infinity : s);
      lo.push_back(gen() % 9 == 0 ? -infinity : value.back() - width);
      hi.push_back(value.back() + width);
    }
    const selection_rules rules{.block = 8, .topk = topk, .local_blocks = local};
    for (std::uint32_t mask = 0; mask < (1U << blocks); ++mask) {
      std::vector<std::int32_t> ids;
      for (std::int64_t b = 0; b < blocks; ++b)
        if ((mask >> b & 1) != 0) ids.push_back(static_cast<std::int32_t>(b));
      if (std::ssize(ids) > topk) continue;
      bool legal = std::ssize(ids) == std::min(blocks, topk);
      for (std::int64_t b = 0; b < blocks; ++b) {
        const bool in = (mask >> b & 1) != 0, forced = b > blocks - 1 - local;
        if (forced && !in) legal = false;
        for (std::int64_t other = 0; other < blocks; ++other)
          if (in && !forced && (mask >> other & 1) == 0 &&
              lo[static_cast<std::size_t>(other)] > hi[static_cast<std::size_t>(b)])
            legal = false;
      }
      ids.resize(static_cast<std::size_t>(topk), -1);
      EXPECT_EQ(!check_selection(ids, score_intervals{value, lo, hi}, blocks, rules), legal)
          << "trial " << trial << " mask " << mask;
    }
  }
}

TEST(selection_intervals, a_violation_is_measured_against_both_intervals) {
  const std::vector<double> value{1, 3, 0}, lo{0.5, 2.5, 0}, hi{1.5, 3.5, 0};
  const selection_rules rules{.block = 8, .topk = 1};
  const std::vector<std::int32_t> ids{0};
  const auto f = check_selection(ids, score_intervals{value, lo, hi}, 3, rules);
  EXPECT_EQ(f.what, selection_fault::kind::worse_chosen);
  EXPECT_EQ(f.excess, 1);
  EXPECT_EQ(f.resolution, 1);
  EXPECT_EQ(effect_of(f), 2);
}

TEST(index_honest, single_precision_passes_in_any_order) {
  for (const dtype type : {bf16, fp16, fp32}) {
    index_world w(op::index, {.di = 48, .type = type});
    w.fill_random(3);
    w.run({});
    EXPECT_TRUE(passes(w.checks())) << told(w.checks());
    w.run({.reversed = true});
    EXPECT_TRUE(passes(w.checks())) << told(w.checks());
  }
}

// Many blocks whose best scores lie within one 16-bit step: the choice of 16-bit scores is legal where it is declared.
TEST(index_honest, near_ties_within_the_declared_precision) {
  index_world w(op::index, {.heads = 1, .di = 16, .block = 1, .topk = 8, .sequences = {{40, 3000}}});
  w.run({.score_store = bf16});
  EXPECT_FALSE(find_check(w.checks(), "K5").passed);
  w.declared.score_store = bf16;
  EXPECT_TRUE(find_check(w.checks(), "K5").passed) << told(w.checks());
}

TEST(index_lse, is_judged_on_the_ids_that_came_back) {
  index_world w(op::index, {});
  w.run({});
  EXPECT_TRUE(find_check(w.checks(), "K2").passed);
  w.run({.lse_factor = 1.001});
  const auto k2 = find_check(w.checks(), "K2");
  EXPECT_FALSE(k2.passed);
  EXPECT_EQ(k2.worst.where, slot::lse_idx);
  EXPECT_TRUE(find_check(w.checks(), "K5").passed);
}

TEST(index_lse, may_be_absent) {
  index_world w(op::index, {});
  w.run({});
  auto l = w.outputs();
  l.outputs.erase(slot::lse_idx);
  const auto checks = expect(w.subject(), w.all_rows())->check(l, 0, 0);
  EXPECT_FALSE(find_check(checks, "K2").observed);
  EXPECT_TRUE(find_check(checks, "K0").passed);
  w.delivers.lse = lse_form::none;
  EXPECT_FALSE(find_check(w.checks(), "K2").observed);
}

TEST(index_lse, of_empty_rows_is_minus_infinity) {
  index_world w(op::index, {});
  w.run({});
  w.lse_idx.set(w.lse_idx.view().offset(4, 1), 0);
  EXPECT_FALSE(find_check(w.checks(), "K0").passed);
  EXPECT_EQ(find_check(w.checks(), "K0").worst.index, (std::vector<std::int64_t>{4, 1}));
}

TEST(index_fault, wrong_sets_are_named) {
  index_world w(op::index, {});
  w.run({.head_shift = 1});
  const auto k5 = find_check(w.checks(), "K5");
  EXPECT_FALSE(k5.passed);
  EXPECT_NE(k5.named.find("chosen"), std::string::npos);
  EXPECT_EQ(k5.kind, fail_kind::selection);
}

TEST(index_ties, are_held_to_the_lower_id_only_where_scores_are_exact) {
  index_world w(op::index, {.heads = 1, .topk = 3, .sequences = {{1, 64}}});
  for (std::int64_t i = 0; i < w.k_idx.desc.elements(); ++i) w.k_idx.set(i, 0.5);
  w.run({});
  w.delivers.ties_low_id = true;
  for (std::int64_t i = 0; i < 2; ++i) w.ids.set_int(i, static_cast<std::int32_t>(3 + i));
  EXPECT_TRUE(find_check(w.checks(), "K5").passed);
  w.definition.family = "index_code";
  EXPECT_NE(find_check(w.checks(), "K5").named.find("lower id is promised"), std::string::npos);
  // A scale that rounds may be applied to q, which makes equal scores differ.
  w.agreed.index_scale = 0.3;
  EXPECT_TRUE(find_check(w.checks(), "K5").passed);
}

TEST(index_detectability, sees_its_faults) {
  index_world w(op::index, {.heads = 2, .di = 64, .block = 16, .sequences = {{20, 333}, {7, 170}}});
  w.targets = {perturbation::drop_last_choice, perturbation::neighbour_head_q};
  const auto sees = expect(w.subject(), w.all_rows())->measure();
  EXPECT_EQ(sees.by_fault.size(), 2U);
  EXPECT_EQ(sees.by_check, "K5");
  EXPECT_GE(sees.value, detectability::floor) << sees.weakest_fault;
}

TEST(index_declaration, chains_of_the_log_sum_exp) {
  index_world w(op::index, {.di = 128, .block = 128, .topk = 16, .sequences = {{1, 4000}}});
  w.declared.chain_row_sum = 2048;
  EXPECT_TRUE(broken_declarations(w.agreed, w.declared, {}).empty());
  w.declared.chain_row_sum = 2049;
  EXPECT_EQ(broken_declarations(w.agreed, w.declared, {}).size(), 1U);
}

}  // namespace
}  // namespace msabench::judge::test

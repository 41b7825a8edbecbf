// SPDX-License-Identifier: Apache-2.0
// `score`: honest implementations lie within their intervals, faulty ones do not, and the line says why.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "index_world.h"
#include "judge/declaration.h"
#include "judge/score_expectation.h"
#include "numbers.h"

namespace msabench::judge::test {
namespace {

std::vector<check_result> checks_after(index_world& w, const index_variant& v) {
  w.run(v);
  return w.checks();
}

TEST(score_honest, single_precision_passes_in_any_order) {
  for (const dtype type : {bf16, fp16, fp32})
    for (const double q_scale : {0.1, 1.0, 30.0}) {
      index_world w(op::score, {.di = 48, .type = type});
      w.fill_random(3, q_scale);
      EXPECT_TRUE(passes(checks_after(w, {}))) << told(w.checks());
      EXPECT_TRUE(passes(checks_after(w, {.reversed = true}))) << told(w.checks());
    }
}

TEST(score_honest, what_is_declared_passes_and_what_is_not_fails_with_the_cure) {
  index_world w(op::score, {.di = 64});
  const auto short_scores = checks_after(w, {.score_store = bf16});
  EXPECT_EQ(find_check(short_scores, "K1").cure, "score_store bf16 instead of fp32") << told(short_scores);
  w.declared.score_store = bf16;
  EXPECT_TRUE(passes(w.checks())) << told(w.checks());
  EXPECT_EQ(find_check(w.checks(), "K1").terms.front().first, "score_store");

  index_world scaled(op::score, {.di = 48});  // whose scale is no power of two
  const auto prescaled = checks_after(scaled, {.prescaled_q = true});
  EXPECT_EQ(find_check(prescaled, "K1").cure, "operand bf16 with rounded_operands 1 instead of bf16 with 0")
      << told(prescaled);
  scaled.declared.rounded_operands = 1;
  EXPECT_TRUE(passes(scaled.checks())) << told(scaled.checks());
}

TEST(score_honest, a_chain_that_is_longer_than_declared_is_the_cure) {
  index_world w(op::score, {.di = 512, .type = fp32});
  // All of one sign, so that the running sum is as large as it can be.
  for (tensor* t : {&w.q_idx, &w.k_idx})
    for (std::int64_t i = 0; i < t->desc.elements(); ++i) t->set(i, std::abs(t->get(i)));
  w.declared.chain_score = 1;
  const auto checks = checks_after(w, {});
  EXPECT_EQ(find_check(checks, "K1").cure.rfind("chain_score >= ", 0), 0U) << told(checks);
  w.declared.chain_score = 0;
  EXPECT_TRUE(passes(w.checks()));
}

TEST(score_honest, raw_unit) {
  index_world w(op::score, {});
  w.run({.raw = true});
  EXPECT_FALSE(passes(w.checks()));
  EXPECT_EQ(find_check(w.checks(), "K1").named, "index_scale left out") << told(w.checks());
  w.delivers.unit = score_unit::raw;
  EXPECT_TRUE(passes(w.checks())) << told(w.checks());
}

// Whatever scale the scores are multiplied by, an only key that is left out is no other fault.
TEST(score_fault, a_dropped_only_key_is_named) {
  index_world w(op::score, {.heads = 1, .sequences = {{1, 65}}});
  w.run({.dropped_key = 64});
  EXPECT_EQ(find_check(w.checks(), "K1").named, "key 64 (block 8, offset 0) left out");
  w.run({});
  w.scores.set(w.scores.view().offset(0, 0, 3), -infinity);
  EXPECT_EQ(find_check(w.checks(), "K1").named, "all 8 visible keys of block 3 left out");
}

TEST(score_detectability, of_the_own_block_needs_its_score) {
  index_world w(op::score, {.heads = 2, .di = 64, .block = 16, .sequences = {{20, 333}, {7, 70}}});
  w.targets = {perturbation::drop_best_key, perturbation::mask_after_max};
  w.delivers.score_own = score_fill::sentinel;
  const auto sees = expect(w.subject(), w.all_rows())->measure();
  EXPECT_EQ(sees.by_fault.size(), 1U);
  EXPECT_GE(sees.value, detectability::floor);
}

TEST(score_honest, own_block_and_tail_as_the_profile_says) {
  index_world w(op::score, {});
  w.run({});
  const auto view = w.scores.view();
  const std::int64_t row = 5, own = w.visible(row) - 1;  // of the last sequence
  for (std::int64_t h = 0; h < 2; ++h) w.scores.set(view.offset(h, row, own), 1e30);
  EXPECT_FALSE(find_check(w.checks(), "K1").passed);
  w.delivers.score_own = score_fill::sentinel;
  EXPECT_TRUE(passes(w.checks())) << told(w.checks());

  w.scores.set(view.offset(0, row, own + 1), 7);
  EXPECT_EQ(find_check(w.checks(), "K0").kind, fail_kind::numeric);
  w.delivers.score_tail = score_fill::sentinel;
  EXPECT_TRUE(passes(w.checks())) << told(w.checks());
}

TEST(score_honest, a_sum_beyond_the_type_may_be_infinite) {
  index_world w(op::score, {.di = 16, .sequences = {{1, 8}}, .type = fp32});
  for (std::int64_t i = 0; i < w.q_idx.desc.elements(); ++i) w.q_idx.set(i, 3e19);
  for (std::int64_t i = 0; i < w.k_idx.desc.elements(); ++i) w.k_idx.set(i, 3e18);
  w.run({});
  EXPECT_EQ(w.scores.get(0), infinity);
  EXPECT_TRUE(passes(w.checks())) << told(w.checks());
}

TEST(score_nan, is_ignored_or_propagated_as_declared) {
  index_world w(op::score, {});
  for (std::int64_t key = 8; key < 16; ++key) w.set_key(0, key, 0, std::nan(""));
  w.set_key(0, 20, 3, std::nan(""));
  w.run({});
  EXPECT_TRUE(passes(w.checks())) << told(w.checks());
  EXPECT_EQ(w.scores.view().at(0, 0, 1), -infinity);
  w.delivers.nan_score = nan_policy::propagate;
  EXPECT_FALSE(passes(w.checks()));
  w.run({.propagates_nan = true});
  EXPECT_TRUE(passes(w.checks())) << told(w.checks());
  w.delivers.nan_score = nan_policy::ignore;
  EXPECT_EQ(find_check(w.checks(), "K0").kind, fail_kind::nonfinite);
}

TEST(score_structure, unwritten_and_empty_rows) {
  index_world w(op::score, {});
  w.run({});
  const auto view = w.scores.view();
  w.scores.set(view.offset(1, 4, 0), 0);  // the padding row
  EXPECT_EQ(find_check(w.checks(), "K0").worst.index, (std::vector<std::int64_t>{1, 4, 0}));
  w.delivers.empty_row = empty_form::undefined;
  EXPECT_TRUE(passes(w.checks())) << told(w.checks());
  w.scores.set(view.offset(0, 0, 2), -infinity);
  EXPECT_EQ(find_check(w.checks(), "K1").kind, fail_kind::numeric);
}

TEST(score_fault, a_dropped_key_is_named) {
  index_world w(op::score, {.heads = 1, .sequences = {{1, 64}}});
  // The best key of block 5.
  std::int64_t dropped = -1;
  for (std::int64_t key = 40; key < 48; ++key) {
    index_variant v{.dropped_key = key};
    w.run(v);
    const auto k1 = find_check(w.checks(), "K1");
    if (k1.passed) continue;
    EXPECT_EQ(dropped, -1) << "one key alone carries the block";
    dropped = key;
    EXPECT_EQ(k1.named, "key " + std::to_string(key) + " (block 5, offset " + std::to_string(key - 40) + ") left out");
    EXPECT_EQ(k1.worst.index, (std::vector<std::int64_t>{0, 0, 5}));
    EXPECT_EQ(k1.cure, "");
  }
  EXPECT_NE(dropped, -1);
}

TEST(score_fault, a_key_past_the_diagonal_is_named) {
  index_world w(op::score, {.heads = 1, .sequences = {{8, 64}}});
  w.set_key(0, 60, 0, 50);
  for (std::int64_t row = 0; row < 8; ++row) w.q_idx.set(w.q_idx.view().offset(row, 0, 0), 2);
  w.run({.visible_more = 1});
  const auto k1 = find_check(w.checks(), "K1");
  EXPECT_FALSE(k1.passed);
  EXPECT_EQ(k1.named, "key 60 (block 7, offset 4) counted, which lies past the row's position 59");
}

TEST(score_fault, other_faults_are_seen) {
  index_world w(op::score, {});
  w.run({.head_shift = 1});
  EXPECT_FALSE(find_check(w.checks(), "K1").passed);
  w.run({.accumulator = bf16});
  EXPECT_FALSE(find_check(w.checks(), "K1").passed);
  for (std::int64_t key = 0; key < 70; ++key) w.set_key(2, key, 0, -30);
  for (std::int64_t row = 5; row < 11; ++row)
    for (std::int64_t h = 0; h < 2; ++h) w.q_idx.set(w.q_idx.view().offset(row, h, 0), 3);
  w.run({.relu = true});
  EXPECT_EQ(find_check(w.checks(), "K1").named, "a negative score emitted as 0");
}

// Both ends of an interval belong to it, and what lies just outside does not.
TEST(judged_score_ratio, at_the_ends) {
  const judged_score at_hi{.got = 3, .want = 2, .lo = 1, .hi = 3};
  EXPECT_EQ(at_hi.ratio(), 1);
  EXPECT_EQ(at_hi.limit(), 1);
  EXPECT_GT((judged_score{.got = std::nextafter(3.0, 4.0), .want = 2, .lo = 1, .hi = 3}.ratio()), 1);
  EXPECT_EQ((judged_score{.got = -infinity, .want = 2, .lo = -infinity, .hi = 3}.ratio()), 0);
  EXPECT_EQ((judged_score{.got = infinity, .want = 2, .lo = 1, .hi = infinity}.ratio()), 0);
  EXPECT_EQ((judged_score{.got = infinity, .want = 2, .lo = 1, .hi = 3}.ratio()), infinity);
  EXPECT_EQ((judged_score{.got = 1e30, .want = infinity, .lo = infinity, .hi = infinity}.ratio()), infinity);
  EXPECT_EQ((judged_score{.got = 0, .want = 0, .lo = 0, .hi = 0}.ratio()), 0);
  EXPECT_EQ((judged_score{.got = std::nan(""), .want = std::nan(""), .lo = -infinity, .hi = -infinity}.ratio()), 0);
}

TEST(score_declaration, chains_and_formats_of_the_index_branch) {
  index_world w(op::score, {.di = 128});
  EXPECT_EQ(index_roundoffs(w.agreed, w.declared).kappa_s, 130);
  EXPECT_TRUE(broken_declarations(w.agreed, w.declared, {}).empty());
  w.declared.chain_score = 131;
  EXPECT_EQ(broken_declarations(w.agreed, w.declared, {}).size(), 1U);
  w.declared = honest_numerics(bf16);
  w.declared.score_acc = bf16;
  EXPECT_EQ(broken_declarations(w.agreed, w.declared, {}).size(), 1U);
  w.declared = honest_numerics(bf16);
  w.declared.score_store = bf16;
  EXPECT_TRUE(broken_declarations(w.agreed, w.declared, {}).empty());
  EXPECT_EQ(named_declarations(w.agreed, w.declared), (std::vector<std::string>{"score16"}));
  w.declared.p_operand = e4m3;  // not of this operator
  EXPECT_TRUE(broken_declarations(w.agreed, w.declared, {}).empty());
}

TEST(score_detectability, sees_its_faults) {
  index_world w(op::score, {.heads = 2, .di = 64, .block = 16, .sequences = {{20, 333}, {7, 70}}});
  w.targets = {perturbation::drop_best_key,    perturbation::neighbour_head_q, perturbation::unscaled_scores,
               perturbation::accumulate_16bit, perturbation::mask_after_max,   perturbation::key_past_diagonal};
  const auto sees = expect(w.subject(), w.all_rows())->measure();
  EXPECT_EQ(sees.by_fault.size(), w.targets.size());
  EXPECT_GE(sees.value, detectability::floor) << sees.weakest_fault;
  // Under a coarse declaration it does not.
  w.declared.rounded_operands = 2;
  w.targets = {perturbation::accumulate_16bit};
  EXPECT_LT(expect(w.subject(), w.all_rows())->measure().value, detectability::floor);
}

}  // namespace
}  // namespace msabench::judge::test

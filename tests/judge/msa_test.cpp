// SPDX-License-Identifier: Apache-2.0
// `msa` is judged in two steps: the returned ids by the index scores, the outputs by these ids.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "attend_world.h"
#include "judge/detectability.h"
#include "reference/score.h"
#include "reference/select.h"

namespace msabench::judge::test {
namespace {

// An attend_world whose ids are outputs, with an index branch.
class msa_world : public attend_world {
 public:
  explicit msa_world(attend_shape s = {.topk = 3, .sequences = {{6, 90}, {1, 0}, {2, 30}}})
      : attend_world(s), q_idx(s.type, {rows(), s.hkv, s.d}), k_idx(s.type, {agreed.total_kv, s.d}) {
    definition.operation = agreed.operation = op::msa;
    agreed.q_idx = agreed.k_idx = s.type;
    agreed.index_scale = 0.25;
    definition.shape = {s.hq, s.hkv, s.d, s.hkv, s.d, s.block, s.topk, 1, 0};
    fill_random(7);
    // Blocks differ by whole numbers in the one channel that counts: nothing is a near-tie but what a test makes one.
    for (std::int64_t row = 0; row < rows(); ++row)
      for (std::int64_t h = 0; h < s.hkv; ++h) q_idx.set(q_idx.view().offset(row, h, h), 1);
    for (std::int64_t key = 0; key < agreed.total_kv; ++key)
      for (std::int64_t h = 0; h < s.hkv; ++h) set_index_key(key, h, static_cast<double>((5 * key + 11 * h) % 127));
    select();
  }

  void set_index_key(std::int64_t key, std::int64_t head, double value) {
    k_idx.set(k_idx.view().offset(key, head), value);
  }

  // The reference's own choice.
  void select() {
    const auto s = subject();
    const reference::score_inputs in{agreed,      q_idx.view(),   k_idx.view(), {},           {},
                                     cu_q.view(), kv_lens.view(), cu_kv.view(), tensor_view{}};
    for (const auto& row : reference::score(in, all_rows(), {}))
      set_ids(row.row, row.head, reference::select_row(row.value, std::ssize(row.value), shape.topk, 1, 0));
  }

  void set_ids(std::int64_t row, std::int64_t head, const std::vector<std::int32_t>& list) {
    for (std::size_t i = 0; i < list.size(); ++i) ids.set_int(ids.view().offset(row, head, i), list[i]);
  }
  std::vector<std::int32_t> ids_at(std::int64_t row, std::int64_t head) const {
    std::vector<std::int32_t> list;
    for (std::int64_t i = 0; i < shape.topk; ++i) list.push_back(ids.view().int_at(row, head, i));
    return list;
  }

  judge::subject subject() const {
    auto s = attend_world::subject();
    s.inputs.erase(slot::ids);
    s.inputs[slot::q_idx] = q_idx.view();
    s.inputs[slot::k_idx] = k_idx.view();
    return s;
  }
  launch outputs() const {
    launch l = attend_world::outputs();
    if (delivers.out_id_order != id_order::none) l.outputs[slot::ids] = ids.view();
    return l;
  }
  std::vector<check_result> checks() const { return expect(subject(), all_rows())->check(outputs(), 0, 0); }

  tensor q_idx, k_idx;
};

// The worst unforced choice of a row exchanged for the best block that was left out.
void exchange_last(msa_world& w, std::int64_t row, std::int64_t head) {
  auto list = w.ids_at(row, head);
  const auto wrong = [&] {
    for (std::int32_t b = 0;; ++b)
      if (std::ranges::find(list, b) == list.end()) return b;
  }();
  list[0] = wrong;
  std::ranges::sort(list);
  w.set_ids(row, head, list);
}

TEST(msa, the_right_answer_passes) {
  msa_world w;
  w.run({});
  const auto checks = w.checks();
  EXPECT_TRUE(passes(checks)) << told(checks);
  for (const char* id : {"K0", "K1", "K2", "K5"}) EXPECT_TRUE(find_check(checks, id).passed) << id;
  EXPECT_EQ(std::ranges::count(checks, "K0", &check_result::id), 1);
  EXPECT_EQ(std::ranges::count(checks, "K2", &check_result::id), 1);
}

TEST(msa, a_wrong_choice_fails_the_selection_and_not_the_numbers) {
  msa_world w;
  exchange_last(w, 2, 1);
  w.run({});
  const auto checks = w.checks();
  const auto k5 = find_check(checks, "K5");
  EXPECT_FALSE(k5.passed) << told(checks);
  EXPECT_EQ(k5.kind, fail_kind::selection);
  EXPECT_EQ(k5.worst.index, (std::vector<std::int64_t>{2, 1}));
  EXPECT_TRUE(find_check(checks, "K1").passed) << told(checks);
  EXPECT_TRUE(find_check(checks, "K2").passed) << told(checks);
}

TEST(msa, outputs_of_other_blocks_than_returned_fail_the_numbers) {
  msa_world w;
  exchange_last(w, 2, 1);
  w.run({});
  w.select();
  const auto checks = w.checks();
  EXPECT_TRUE(find_check(checks, "K5").passed) << told(checks);
  EXPECT_FALSE(find_check(checks, "K2").passed) << told(checks);
  EXPECT_EQ(find_check(checks, "K2").worst.index[0], 2);
}

// Scores that differ by less than an honest product may be off by: either choice is right, and outputs follow it.
TEST(msa, a_near_tie_may_go_either_way) {
  msa_world w({.topk = 2, .sequences = {{1, 24}}, .type = fp32});
  for (std::int64_t key = 0; key < 24; ++key)
    for (std::int64_t h = 0; h < 2; ++h) w.set_index_key(key, h, key / 8 == 0 ? 1 : 1 + 0x1p-23);
  w.agreed.index_scale = 0.3;
  for (const std::int32_t chosen : {0, 1}) {
    for (std::int64_t h = 0; h < 2; ++h) w.set_ids(0, h, {chosen, 2});
    w.run({});
    const auto checks = w.checks();
    EXPECT_TRUE(passes(checks)) << told(checks);
  }
  for (std::int64_t h = 0; h < 2; ++h) w.set_index_key(3, h, 2);
  for (std::int64_t h = 0; h < 2; ++h) w.set_ids(0, h, {1, 2});
  w.run({});
  EXPECT_FALSE(find_check(w.checks(), "K5").passed);
}

TEST(msa, without_ids_the_selection_is_not_observed) {
  msa_world w;
  w.delivers.out_id_order = id_order::none;
  w.run({});
  auto checks = w.checks();
  const auto k5 = find_check(checks, "K5");
  EXPECT_FALSE(k5.observed);
  EXPECT_FALSE(k5.passed);
  EXPECT_NE(k5.note.find("selection not observed"), std::string::npos);
  EXPECT_TRUE(find_check(checks, "K1").passed) << told(checks);
  observation seen;
  detectability sees;
  sees.judged = true;
  sees.value = 100;
  EXPECT_EQ(decide(w.subject(), seen, checks, sees).decided, verdict::insensitive);
  // The numbers are held to the only selection that the scores allow.
  exchange_last(w, 2, 1);
  w.run({});
  EXPECT_FALSE(find_check(w.checks(), "K2").passed);
}

TEST(msa, ids_that_were_never_written_break_the_contract) {
  msa_world w;
  w.run({});
  for (std::int64_t i = 0; i < w.shape.topk; ++i) w.ids.set_int(w.ids.view().offset(4, 0, i), 0x7F7F7F7F);
  const auto checks = w.checks();
  EXPECT_EQ(find_check(checks, "K0").kind, fail_kind::contract) << told(checks);
  EXPECT_FALSE(find_check(checks, "K5").passed);
}

TEST(msa, faults_of_both_branches_are_measured) {
  msa_world w;
  w.targets = {perturbation::drop_block, perturbation::drop_last_choice, perturbation::neighbour_head_v};
  const auto d = expect(w.subject(), w.all_rows())->measure();
  ASSERT_TRUE(d.judged);
  ASSERT_EQ(d.by_fault.size(), 3U);
  double least = unbounded_effect;
  for (const auto& [fault, value] : d.by_fault) {
    EXPECT_GT(value, 4) << fault;
    least = std::min(least, value);
  }
  EXPECT_EQ(d.value, least);
}

}  // namespace
}  // namespace msabench::judge::test

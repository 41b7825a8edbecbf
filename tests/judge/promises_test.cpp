// SPDX-License-Identifier: Apache-2.0
#include "judge/promises.h"

#include <gtest/gtest.h>

#include "attend_world.h"

namespace msabench::judge::test {
namespace {

// Outputs of an attend world, and the part of them that one row alone would be.
class world_and_row {
 public:
  world_and_row() {
    world_.fill_random(3);
    world_.run({});
    world_.delivers.batch_invariant = world_.delivers.split_invariant = true;
  }
  attend_world& world() { return world_; }
  launch together() const { return world_.outputs(); }
  lone_launch alone(std::int64_t row) {
    out_ = tensor(world_.out.desc.type, {1, world_.shape.hq, world_.shape.d});
    lse_ = tensor(fp32, {1, world_.shape.hq});
    for (std::int64_t head = 0; head < world_.shape.hq; ++head) {
      for (std::int64_t c = 0; c < world_.shape.d; ++c)
        out_.set(out_.view().offset(0, head, c), world_.out.view().at(row, head, c));
      lse_.set(lse_.view().offset(0, head), world_.lse.view().at(row, head));
    }
    return view(row);
  }
  lone_launch view(std::int64_t row) const {
    lone_launch l;
    l.row = row;
    l.outputs.outputs = {{slot::out, out_.view()}, {slot::lse, lse_.view()}};
    return l;
  }
  tensor out_, lse_;

 private:
  attend_world world_{{.sequences = {{20, 45}, {3, 9}}}};
};

TEST(batch_invariance, holds_for_equal_bits) {
  world_and_row w;
  const auto c = check_batch_invariance(w.world().subject(), w.together(), std::vector{w.alone(7)});
  EXPECT_TRUE(c.passed);
  EXPECT_TRUE(c.observed);
  EXPECT_EQ(c.id, "K7b");
  EXPECT_EQ(c.promise, "batch_invariant");
  EXPECT_EQ(c.value, 0);
}

TEST(batch_invariance, one_bit_of_one_element_breaks_it) {
  world_and_row w;
  w.alone(7);
  const double exact = w.world().lse.view().at(7, 2);
  w.lse_.set(w.lse_.view().offset(0, 2), std::nextafter(static_cast<float>(exact), HUGE_VALF));
  const auto c = check_batch_invariance(w.world().subject(), w.together(), std::vector{w.view(7)});
  EXPECT_FALSE(c.passed);
  EXPECT_EQ(c.kind, fail_kind::none);
  EXPECT_EQ(c.value, 1);
  EXPECT_EQ(c.worst.where, slot::lse);
  EXPECT_EQ(c.worst.index, (std::vector<std::int64_t>{7, 2}));
  EXPECT_EQ(c.worst.want, exact);
  EXPECT_NE(c.note.find("row 7 alone"), std::string::npos);
}

TEST(batch_invariance, compares_with_the_same_row) {
  world_and_row w;
  w.alone(7);
  EXPECT_FALSE(check_batch_invariance(w.world().subject(), w.together(), std::vector{w.view(8)}).passed);
}

TEST(batch_invariance, zeros_of_either_sign_are_other_bits) {
  world_and_row w;
  w.world().out.set(w.world().out.view().offset(7, 0, 3), 0.0);
  w.alone(7);
  EXPECT_TRUE(check_batch_invariance(w.world().subject(), w.together(), std::vector{w.view(7)}).passed);
  w.out_.set(w.out_.view().offset(0, 0, 3), -0.0);
  EXPECT_FALSE(check_batch_invariance(w.world().subject(), w.together(), std::vector{w.view(7)}).passed);
}

TEST(batch_invariance, scores_of_blocks_that_a_row_sees_count) {
  attend_world w({});
  subject what = w.subject();
  what.agreed.operation = op::score;
  tensor many(fp32, {2, 3, 5}), few(fp32, {2, 1, 2});
  for (std::int64_t h = 0; h < 2; ++h)
    for (std::int64_t row = 0; row < 3; ++row)
      for (std::int64_t b = 0; b < 5; ++b) {
        many.set(many.view().offset(h, row, b), static_cast<double>(100 * h + 10 * row + b));
        if (row == 1 && b < 2) few.set(few.view().offset(h, 0, b), static_cast<double>(100 * h + 10 * row + b));
      }
  launch together;
  together.outputs = {{slot::scores, many.view()}};
  lone_launch alone;
  alone.row = 1;
  alone.outputs.outputs = {{slot::scores, few.view()}};
  EXPECT_TRUE(check_batch_invariance(what, together, std::vector{alone}).passed);
  few.set(few.view().offset(1, 0, 1), 7);
  const auto c = check_batch_invariance(what, together, std::vector{alone});
  EXPECT_FALSE(c.passed);
  EXPECT_EQ(c.worst.index, (std::vector<std::int64_t>{1, 1, 1}));
  EXPECT_EQ(c.worst.got, 7);
  EXPECT_EQ(c.worst.want, 111);
}

TEST(split_invariance, counts_launches_with_other_bits) {
  world_and_row w;
  const launch usual = w.together();
  attend_world other = w.world();
  std::vector<split_launch> others = {{1, other.outputs()}, {3, other.outputs()}};
  EXPECT_TRUE(check_split_invariance(w.world().subject(), usual, others).passed);
  other.out.set(other.out.view().offset(5, 1, 0), 3);
  const auto c = check_split_invariance(w.world().subject(), usual, others);
  EXPECT_FALSE(c.passed);
  EXPECT_EQ(c.id, "K7s");
  EXPECT_EQ(c.promise, "split_invariant");
  EXPECT_EQ(c.value, 2);
  EXPECT_EQ(c.worst.index, (std::vector<std::int64_t>{5, 1, 0}));
}

TEST(split_invariance, what_neither_launch_wrote_is_equal) {
  world_and_row w;
  attend_world one = w.world(), two = w.world();
  one.poison_outputs(1);
  two.poison_outputs(2);
  launch a = one.outputs(), b = two.outputs();
  a.index = 1;
  b.index = 2;
  EXPECT_TRUE(check_split_invariance(w.world().subject(), a, std::vector<split_launch>{{3, b}}).passed);
  b.index = 3;
  EXPECT_FALSE(check_split_invariance(w.world().subject(), a, std::vector<split_launch>{{3, b}}).passed);
}

TEST(decide, a_promise_that_is_not_kept) {
  attend_world w({});
  check_result held, broken, wrong;
  held.id = "K1";
  held.passed = true;
  broken.id = "K7b";
  broken.promise = "batch_invariant";
  broken.note = "other bits";
  EXPECT_EQ(decide(w.subject(), {}, {held, broken}, {}).decided, verdict::broken_promise);
  EXPECT_NE(decide(w.subject(), {}, {held, broken}, {}).reason.find("K7b attend"), std::string::npos);
  // Wrong values are graver, whatever was promised.
  wrong.id = "K1";
  wrong.kind = fail_kind::numeric;
  EXPECT_EQ(decide(w.subject(), {}, {broken, wrong}, {}).decided, verdict::fail);
}

}  // namespace
TEST(promises, graph_safety_is_every_check_of_every_replay) {
  const std::vector<replayed_launch> replays(2, {"fewer rows", {}});
  check_result good, bad, reported;
  good.id = "K0";
  bad.id = reported.id = "K1";
  good.passed = true;
  reported.gate = false;
  const std::vector<std::vector<check_result>> right = {{good, reported}, {good}}, wrong = {{good}, {good, bad}};
  EXPECT_TRUE(check_graph_safety(replays, right).passed);
  const check_result c = check_graph_safety(replays, wrong);
  EXPECT_FALSE(c.passed);
  EXPECT_EQ(c.promise, "graph_safe");
  EXPECT_EQ(c.kind, fail_kind::none) << "a broken promise";
  EXPECT_NE(c.note.find("K1"), std::string::npos) << c.note;
  EXPECT_FALSE(replay_damaged("run crashed").passed);
}

TEST(promises, hardening_is_the_absence_of_damage) {
  const std::vector<breached_launch> none = {{"page ids out of range", ""}, {"lengths that decrease", ""}};
  EXPECT_TRUE(check_hardening(none).passed);
  auto some = none;
  some[0].damage = "run crashed";
  const check_result c = check_hardening(some);
  EXPECT_FALSE(c.passed);
  EXPECT_EQ(c.promise, "hardened");
  EXPECT_EQ(c.value, 1);
  EXPECT_NE(c.note.find("page ids out of range: run crashed"), std::string::npos) << c.note;
}

}  // namespace msabench::judge::test

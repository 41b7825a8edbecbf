// SPDX-License-Identifier: Apache-2.0
// Keys and values with scales: outputs are held to the scaled ones, faults of scales are measured, and a declaration says
// what becomes of a scaled value.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "judge/declaration.h"
#include "select_world.h"

namespace msabench::judge::test {
namespace {

using enum perturbation;

// A world whose emulated implementation knows no scales: it is right where they are 1, and has them left out elsewhere.
class scaled_world : public attend_world {
 public:
  explicit scaled_world(double spread)
      : attend_world({.sequences = {{6, 90}, {1, 0}, {2, 30}}}),
        k_scale(fp32, {agreed.total_kv, shape.hkv}),
        v_scale(fp32, {agreed.total_kv, shape.hkv}) {
    fill_random(7);
    agreed.kv_scale = 2;
    for (std::int64_t i = 0; i < k_scale.desc.elements(); ++i) {
      k_scale.set(i, 1 + spread * static_cast<double>(i * 37 % 64) / 64);
      v_scale.set(i, 1 + spread * static_cast<double>(i * 23 % 64) / 64);
    }
  }

  judge::subject subject() const {
    auto s = attend_world::subject();
    s.inputs[slot::k_scale] = k_scale.view();
    s.inputs[slot::v_scale] = v_scale.view();
    return s;
  }

  bool passes() {
    run({});
    const auto s = subject();
    const auto checks = expect(s, all_rows())->check(outputs(), 0, 1);
    return std::ranges::all_of(checks, [](const check_result& c) { return c.passed; });
  }

  tensor k_scale, v_scale;
};

TEST(scaled, outputs_are_held_to_the_scaled_values) {
  EXPECT_TRUE(scaled_world(0).passes());
  EXPECT_FALSE(scaled_world(0.5).passes());
}

TEST(scaled, faults_of_scales_are_seen) {
  scaled_world w(1);
  w.targets = {scale_left_out, scale_of_other, scale_of_next_head};
  const auto d = expect(w.subject(), w.all_rows())->measure();
  ASSERT_EQ(d.by_fault.size(), 3U);
  for (const auto& [fault, ratio] : d.by_fault) EXPECT_GT(ratio, 4) << fault;
  // Scales of 1 leave nothing to see, and contiguous keys have no pages.
  scaled_world plain(0);
  plain.targets = {scale_left_out, scale_of_other, scale_of_next_head, scale_of_page};
  for (const auto& [fault, ratio] : expect(plain.subject(), plain.all_rows())->measure().by_fault)
    EXPECT_EQ(ratio, 0) << fault;
}

TEST(scaled, the_effect_equals_that_of_the_planted_fault) {
  scaled_world w(0.25);
  w.targets = {scale_left_out};
  const auto measured = expect(w.subject(), w.all_rows())->measure();
  w.run({});
  double worst = 0;
  for (const auto& c : expect(w.subject(), w.all_rows())->check(w.outputs(), 0, 1))
    if (c.id == "K1" || c.id == "K2") worst = std::max(worst, c.value / c.limit);
  EXPECT_GE(worst, 0.9 * measured.value);
  EXPECT_LE(worst, 20 * measured.value);
}

TEST(scaled, a_second_rounding_shows_on_single_values_only) {
  scaled_world w(1);
  w.targets = {rounded_again};
  EXPECT_GT(expect(w.subject(), w.all_rows())->measure().value, 4);  // rows of few keys
  attend_world long_rows({.hq = 2, .hkv = 1, .d = 128, .block = 128, .topk = 16, .sequences = {{1, 4000}}});
  long_rows.fill_random(4);
  EXPECT_EQ(seen(long_rows, rounded_again), 0);  // nothing is scaled
}

TEST(scaled, values_kept_in_fp32_are_rounded_but_not_by_name) {
  problem p = attend_world({}).agreed;
  p.kv = e4m3;
  auto n = honest_numerics(bf16);
  n.operand = n.v_operand = fp32;
  n.rounded_operands = 1;
  const auto r = resolve(p, n);
  EXPECT_EQ(r.u_in, 0x1p-24);
  EXPECT_EQ(r.u_v, 0x1p-24);
  EXPECT_TRUE(broken_declarations(p, n, profile{}).empty());
  EXPECT_TRUE(named_declarations(p, n).empty());
  n.operand = bf16;
  EXPECT_EQ(resolve(p, n).u_in, 0x1p-8);
  EXPECT_EQ(named_declarations(p, n), std::vector<std::string>{"fp8_to_bf16"});
}

}  // namespace
}  // namespace msabench::judge::test

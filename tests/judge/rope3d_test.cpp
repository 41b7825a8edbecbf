// SPDX-License-Identifier: Apache-2.0
// Rotated patches, positions and segments: limits, honest results, faults and what is seen of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "attend_world.h"
#include "judge/rope3d_expectation.h"
#include "numbers.h"

namespace msabench::judge::test {
namespace {

// A kernel of single precision, or one with a fault: coordinates, frequencies and rotation may be others.
struct rope_variant {
  std::array<double, 3> (*coordinates)(std::array<double, 3>) = nullptr;
  double base = 1e4;
  std::int64_t distance = 39;
  float sign = 1;
};

class rope3d_world {
 public:
  explicit rope3d_world(std::vector<std::array<std::int32_t, 3>> items, dtype type = bf16) {
    p.operation = op::rope3d;
    p.hq = p.hkv = 2;
    p.d = 80;
    p.vit_window = 4;
    p.rope_theta = 1e4;
    p.q = p.kv = p.out = type;
    p.batch = static_cast<std::int64_t>(items.size());
    grids = tensor(i32, {p.batch, 3});
    for (std::int64_t i = 0; i < p.batch; ++i)
      for (std::int64_t axis = 0; axis < 3; ++axis)
        grids.set_int(i * 3 + axis, items[static_cast<std::size_t>(i)][static_cast<std::size_t>(axis)]);
    layout = reference::lay_out(grids.view(), 4);
    p.total_q = p.total_kv = std::ssize(layout.positions);
    std::mt19937 gen(9);
    for (tensor* t : {&q, &k, &q_rope, &k_rope}) *t = tensor(type, {p.total_q, 2, 80});
    for (tensor* t : {&q, &k})
      for (std::int64_t i = 0; i < t->desc.elements(); ++i) t->set(i, normal(gen));
    positions = tensor(i32, {p.total_q, 3});
    segments = tensor(i32, {std::ssize(layout.cu_segments)});
    declared = honest_numerics(type);
  }

  void run(const rope_variant& how = {}) {
    for (std::int64_t row = 0; row < p.total_q; ++row) {
      std::array<double, 3> at{};
      for (std::size_t axis = 0; axis < 3; ++axis) {
        const std::int32_t value = layout.positions[static_cast<std::size_t>(row)][axis];
        at[axis] = value;
        positions.set_int(row * 3 + static_cast<std::int64_t>(axis), value);
      }
      if (how.coordinates) at = how.coordinates(at);
      for (std::int64_t head = 0; head < 2; ++head) {
        rotate(q, q_rope, row, head, at, how);
        rotate(k, k_rope, row, head, at, how);
      }
    }
    for (std::int64_t s = 0; s < std::ssize(layout.cu_segments); ++s)
      segments.set_int(s, layout.cu_segments[static_cast<std::size_t>(s)]);
  }

  judge::subject subject() const {
    case_spec c;
    c.operation = op::rope3d;
    return {c, p, {}, declared, {{slot::q, q.view()}, {slot::k, k.view()}, {slot::grids, grids.view()}}, targets};
  }
  std::vector<std::int64_t> all_rows() const {
    std::vector<std::int64_t> all(static_cast<std::size_t>(p.total_q));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
    return all;
  }
  std::vector<check_result> checks() const {
    launch l;
    l.outputs = {{slot::q_rope, q_rope.view()},
                 {slot::k_rope, k_rope.view()},
                 {slot::positions, positions.view()},
                 {slot::cu_segments, segments.view()}};
    return expect(subject(), all_rows())->check(l, 0, 0);
  }
  double seen(perturbation fault) {
    targets = {fault};
    return expect(subject(), all_rows())->measure().value;
  }

  problem p;
  numerics declared;
  std::vector<perturbation> targets;
  reference::vit_layout layout;
  tensor q{bf16, {1}}, k{bf16, {1}}, grids{i32, {1}}, q_rope{bf16, {1}}, k_rope{bf16, {1}}, positions{i32, {1}},
      segments{i32, {1}};

 private:
  static void rotate(const tensor& x, tensor& y, std::int64_t row, std::int64_t head, const std::array<double, 3>& at,
                     const rope_variant& how) {
    const std::int64_t first = x.view().offset(row, head, 0);
    std::vector<float> values(80);
    for (std::size_t c = 0; c < 80; ++c) values[c] = static_cast<float>(x.get(first + static_cast<std::int64_t>(c)));
    for (std::size_t i = 0; i < 39; ++i) {
      const auto frequency = static_cast<float>(std::pow(how.base, -static_cast<double>(i % 13) / 13));
      const float angle = how.sign * static_cast<float>(at[i / 13]) * frequency;
      const std::size_t other = i + static_cast<std::size_t>(how.distance);
      const float low = values[i], high = values[other];
      values[i] = low * std::cos(angle) - high * std::sin(angle);
      values[other] = high * std::cos(angle) + low * std::sin(angle);
    }
    for (std::size_t c = 0; c < 80; ++c) y.set(first + static_cast<std::int64_t>(c), static_cast<double>(values[c]));
  }
};

TEST(rope3d, the_limit_has_the_terms_of_the_derivation) {
  roundoffs r;
  r.u_o = 0x1p-8;
  r.omega_o = 0x1p-25;
  const auto l = limit_of_rope3d(r, -3, 5, -2);
  EXPECT_NEAR(l.total, 3 * 0x1p-8 + 1.02 * ((8 * 0x1p-24 + 4 * 0x1p-24 * 2 + 0x1p-22) * 5 + 0x1p-25 + 4 * 0x1p-126),
              1e-15);
  // What passes through is stored as it was, or rounded.
  EXPECT_NEAR(limit_of_rope3d(r, 1, 0, 0).total, 0x1p-8 + 1.02 * 0x1p-25, 1e-15);
}

TEST(rope3d, honest_kernels_pass) {
  for (const dtype type : {bf16, fp16, fp32}) {
    rope3d_world w({{10, 4, 6}, {1, 2, 8}}, type);
    w.run();
    for (const auto& c : w.checks()) EXPECT_TRUE(c.passed) << c.id << " " << c.note;
  }
}

TEST(rope3d, faults_fail) {
  const std::pair<const char*, rope_variant> faults[] = {
      {"axes swapped", {.coordinates = [](auto at) { return std::array{at[0], at[2], at[1]}; }}},
      {"without t", {.coordinates = [](auto at) { return std::array{0.0, at[1], at[2]}; }}},
      {"base", {.coordinates = nullptr, .base = 5e6}},
      {"halves of the head", {.coordinates = nullptr, .distance = 40}},
      {"backwards", {.coordinates = nullptr, .sign = -1}}};
  for (const auto& [name, how] : faults) {
    rope3d_world w({{10, 4, 6}});
    w.run(how);
    const auto k1 = find_check(w.checks(), "K1");
    EXPECT_FALSE(k1.passed) << name;
    EXPECT_EQ(k1.kind, fail_kind::numeric) << name;
  }
}

TEST(rope3d, positions_and_segments_are_exact) {
  rope3d_world w({{10, 4, 6}});
  w.run();
  w.positions.set_int(200 * 3, 9);
  auto k1 = find_check(w.checks(), "K1");
  EXPECT_FALSE(k1.passed);
  EXPECT_EQ(k1.worst.where, slot::positions);
  EXPECT_EQ(k1.worst.index, (std::vector<std::int64_t>{200, 0}));
  w.run();
  w.segments.set_int(2, 191);
  k1 = find_check(w.checks(), "K1");
  EXPECT_FALSE(k1.passed);
  EXPECT_EQ(k1.worst.where, slot::cu_segments);
  EXPECT_EQ(k1.worst.want, 192);
}

TEST(rope3d, what_was_not_written_is_found) {
  rope3d_world w({{10, 4, 6}});
  w.run();
  EXPECT_TRUE(find_check(w.checks(), "K0").passed);
  w.segments.set_int(3, 0x7F7F7F7F);
  auto k0 = find_check(w.checks(), "K0");
  EXPECT_FALSE(k0.passed);
  EXPECT_EQ(k0.kind, fail_kind::contract);
  w.run();
  w.k_rope.set(w.k_rope.view().offset(7, 1, 3), NAN);
  EXPECT_EQ(find_check(w.checks(), "K0").kind, fail_kind::nonfinite);
}

TEST(rope3d, faults_are_seen) {
  rope3d_world w({{10, 4, 6}, {1, 2, 8}});
  for (const auto fault : {perturbation::t_not_restarted, perturbation::two_axes_only, perturbation::axes_swapped,
                           perturbation::merge_ignored, perturbation::window_ignored, perturbation::frames_apart,
                           perturbation::base_of_text, perturbation::dims_of_head, perturbation::rope_all_dims,
                           perturbation::rope_interleaved, perturbation::rope_backwards})
    EXPECT_GT(w.seen(fault), 4) << name(fault);
  rope3d_world image({{1, 4, 6}});
  for (const auto fault : {perturbation::t_not_restarted, perturbation::window_ignored, perturbation::frames_apart,
                           perturbation::two_axes_only, perturbation::drop_key})
    EXPECT_EQ(image.seen(fault), 0) << name(fault);
}

}  // namespace
}  // namespace msabench::judge::test

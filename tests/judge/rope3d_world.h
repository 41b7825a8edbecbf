// SPDX-License-Identifier: Apache-2.0
// A small `rope3d` case, and an emulation of implementations of it in single precision: an honest one, and faulty ones.
#pragma once

#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "attend_world.h"
#include "judge/rope3d_expectation.h"
#include "numbers.h"

namespace msabench::judge::test {

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

}  // namespace msabench::judge::test

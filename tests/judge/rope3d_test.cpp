// SPDX-License-Identifier: Apache-2.0
// Rotated patches, positions and segments: limits, honest results, faults and what is seen of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "rope3d_world.h"

namespace msabench::judge::test {
namespace {

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

// SPDX-License-Identifier: Apache-2.0
// `vit_attend` is judged as `dense` is, over the whole segment of a token.
#include "reference/vit_attend.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "attend_world.h"
#include "judge/attend_expectation.h"

namespace msabench::judge::test {
namespace {

using segment_keys = std::vector<std::int64_t>;

attend_shape vision(const std::vector<std::int64_t>& lengths, std::int32_t d = 16, std::int32_t block = 8) {
  attend_shape shape{.hq = 2, .hkv = 2, .d = d, .block = block, .topk = 2, .sequences = {}, .segments = true};
  for (const std::int64_t n : lengths) shape.sequences.push_back({n, n});
  return shape;
}

variant editing_segment(std::function<void(std::int64_t, segment_keys&)> edit) {
  variant v;
  v.edit_keys = [edit = std::move(edit)](std::int64_t row, std::int64_t, segment_keys& keys) { edit(row, keys); };
  return v;
}

TEST(vit_attend, the_oracle_is_the_reference_of_the_operator) {
  attend_world w(vision({40, 4, 17}));
  w.fill_random(2);
  const auto s = w.subject();
  const auto in = attend_inputs_of(s);
  const auto rows = w.all_rows();
  const reference::score_error err{.per_magnitude = 1e-6};
  const auto one = reference::attend(in, rows, err);
  const auto other =
      reference::vit_attend({s.agreed, w.q.view(), w.k.view(), w.v.view(), s.inputs.at(slot::cu_segments)}, rows, err);
  ASSERT_EQ(one.size(), other.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].out, other[i].out);
    EXPECT_EQ(one[i].lse, other[i].lse);
    EXPECT_EQ(one[i].e1, other[i].e1);
  }
}

TEST(vit_attend, honest_implementations_pass) {
  for (const double sharpness : {0.3, 1.0, 4.0})
    for (const variant& how : {variant{}, variant{.reversed = true}, variant{.p = bf16}, variant{.splits = 7}}) {
      attend_world w(vision({64, 16, 24, 4, 1}));
      w.fill_random(3, sharpness);
      w.run(how);
      const auto checks = checks_of(w);
      EXPECT_TRUE(passes(checks)) << told(checks);
    }
}

TEST(vit_attend, borders_of_segments_are_kept) {
  const std::pair<const char*, variant> faults[] = {
      {"causal", editing_segment([](std::int64_t row, segment_keys& keys) {
         std::erase_if(keys, [&](auto k) { return k > (row < 64 ? row : row - 64); });
       })},
      {"the other segment as well", editing_segment([](std::int64_t row, segment_keys& keys) {
         for (std::int64_t k = 0; k < 16 && row < 64; ++k) keys.push_back(64 + k);
       })},
      {"its first half only", editing_segment([](std::int64_t, segment_keys& keys) { keys.resize(keys.size() / 2); })}};
  for (const auto& [name, how] : faults) {
    attend_world w(vision({64, 16}));
    w.fill_random(1);
    w.run(how);
    const auto checks = checks_of(w);
    EXPECT_FALSE(find_check(checks, "K1").passed) << name;
    EXPECT_FALSE(find_check(checks, "K2").passed) << name;
  }
}

TEST(vit_attend, codes_name_keys) {
  attend_world w(vision({320, 16}, 64), "key_code");
  w.fill_key_code(38);
  w.run(editing_segment([](std::int64_t row, segment_keys& k) {
    if (row == 5) std::erase(k, 307);
  }));
  const auto k3 = find_check(checks_of(w), "K3");
  EXPECT_FALSE(k3.passed);
  EXPECT_EQ(k3.named, "key 307 (block 38, offset 3) dropped");
}

TEST(vit_attend, faults_are_seen) {
  attend_world w(vision({96, 96, 48}, 80, 128));
  w.fill_random(4);
  for (const auto fault : {perturbation::causal_bound, perturbation::segments_joined, perturbation::segment_padded,
                           perturbation::neighbour_head_v})
    EXPECT_GT(seen(w, fault), 4) << name(fault);
  attend_world one(vision({96}, 80, 128));
  one.fill_random(4);
  for (const auto fault : {perturbation::segments_joined, perturbation::segment_padded})
    EXPECT_EQ(seen(one, fault), 0) << name(fault);
  attend_world text({.sequences = {{3, 40}}, .dense = true});
  text.fill_random(4);
  for (const auto fault : {perturbation::causal_bound, perturbation::segments_joined, perturbation::segment_padded})
    EXPECT_EQ(seen(text, fault), 0) << name(fault);
}

}  // namespace
}  // namespace msabench::judge::test

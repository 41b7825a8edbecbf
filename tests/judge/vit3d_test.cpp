// SPDX-License-Identifier: Apache-2.0
// Both halves of vit3d: on what came back of the rotation, and without it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/poison.h"
#include "rope3d_world.h"

namespace msabench::judge::test {
namespace {

// rope3d_world, and attention in float64 on the q and k that it rotated, or on others.
class vit3d_world : public rope3d_world {
 public:
  explicit vit3d_world(std::vector<std::array<std::int32_t, 3>> items, dtype type = bf16)
      : rope3d_world(std::move(items), type) {
    p.operation = op::vit3d;
    p.block = 128;
    p.topk = 16;
    p.max_q_len = p.max_kv_len = p.total_q;
    std::mt19937 gen(11);
    for (tensor* t : {&v, &out}) *t = tensor(type, {p.total_q, 2, 80});
    for (std::int64_t i = 0; i < v.desc.elements(); ++i) v.set(i, normal(gen));
    lse = tensor(fp32, {p.total_q, 2});
  }

  void attend(const tensor& queries, const tensor& keys) {
    for (std::size_t s = 1; s < layout.cu_segments.size(); ++s)
      for (std::int64_t row = layout.cu_segments[s - 1]; row < layout.cu_segments[s]; ++row)
        for (std::int64_t head = 0; head < 2; ++head)
          attend_row(queries, keys, {layout.cu_segments[s - 1], layout.cu_segments[s]}, row, head);
  }

  judge::subject whole(bool bare = false) const {
    judge::subject what = subject();
    what.definition.operation = op::vit3d;
    what.definition.family = "random";
    what.definition.options.bare = bare;
    what.inputs[slot::v] = v.view();
    return what;
  }
  launch outputs(bool with_rotation) const {
    launch l;
    l.outputs = {{slot::out, out.view()}, {slot::lse, lse.view()}};
    if (!with_rotation) return l;
    l.outputs.insert({{slot::q_rope, q_rope.view()},
                      {slot::k_rope, k_rope.view()},
                      {slot::positions, positions.view()},
                      {slot::cu_segments, segments.view()}});
    return l;
  }
  std::vector<check_result> judged(bool with_rotation, bool bare = false) const {
    return expect(whole(bare), all_rows())->check(outputs(with_rotation), 0, 0);
  }
  void poison_rotation() {
    for (tensor* t : {&q_rope, &k_rope})
      for (std::int64_t i = 0; i < t->desc.elements(); ++i) put_poison(*t, i);
    for (tensor* t : {&positions, &segments})
      for (std::int64_t i = 0; i < t->desc.elements(); ++i) t->set_int(i, 0x7F7F7F7F);
  }
  static void put_poison(tensor& t, std::int64_t i) {
    const std::uint64_t bits = poison_bits(t.desc.type, 0, 0);
    std::memcpy(t.bytes.data() + i * size_bytes(t.desc.type), &bits, static_cast<std::size_t>(size_bytes(t.desc.type)));
  }

  tensor v, out, lse;

 private:
  void attend_row(const tensor& queries, const tensor& keys, std::pair<std::int64_t, std::int64_t> segment,
                  std::int64_t row, std::int64_t head) {
    std::vector<double> scores, sums(80);
    for (std::int64_t j = segment.first; j < segment.second; ++j) {
      double s = 0;
      for (std::int64_t c = 0; c < 80; ++c)
        s += queries.get(queries.view().offset(row, head, c)) * keys.get(keys.view().offset(j, head, c));
      scores.push_back(s / std::sqrt(80.0));
    }
    const double most = *std::ranges::max_element(scores);
    double total = 0;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const double weight = std::exp(scores[i] - most);
      total += weight;
      for (std::int64_t c = 0; c < 80; ++c)
        sums[static_cast<std::size_t>(c)] +=
            weight * v.get(v.view().offset(segment.first + static_cast<std::int64_t>(i), head, c));
    }
    for (std::int64_t c = 0; c < 80; ++c)
      out.set(out.view().offset(row, head, c), sums[static_cast<std::size_t>(c)] / total);
    lse.set(row * 2 + head, most + std::log(total));
  }
};

TEST(vit3d, honest_kernels_pass_with_and_without_rotation_handed_back) {
  for (const dtype type : {bf16, fp16, fp32}) {
    vit3d_world w({{5, 4, 4}, {1, 2, 2}}, type);
    w.run();
    w.attend(w.q_rope, w.k_rope);
    EXPECT_TRUE(passes(w.judged(true))) << told(w.judged(true));
    EXPECT_TRUE(passes(w.judged(false, true))) << told(w.judged(false, true));
    if (type != fp32) {
      EXPECT_TRUE(find_check(w.judged(true), "K4b").observed);
    }
  }
}

TEST(vit3d, each_half_fails_by_itself) {
  vit3d_world w({{5, 4, 4}, {1, 2, 2}});
  // A wrong rotation under right attention on it.
  w.run({.coordinates = [](auto at) { return std::array{0.0, at[1], at[2]}; }});
  w.attend(w.q_rope, w.k_rope);
  auto k1 = find_check(w.judged(true), "K1");
  EXPECT_FALSE(k1.passed);
  EXPECT_TRUE(k1.worst.where == slot::q_rope || k1.worst.where == slot::k_rope);
  EXPECT_FALSE(find_check(w.judged(false, true), "K1").passed);
  // Attention that forgets the rotation beside a right one.
  w.run();
  w.attend(w.q, w.k);
  k1 = find_check(w.judged(true), "K1");
  EXPECT_FALSE(k1.passed);
  EXPECT_EQ(k1.worst.where, slot::out);
  EXPECT_FALSE(find_check(w.judged(false, true), "K1").passed);
}

TEST(vit3d, a_rotation_that_is_asked_for_and_not_handed_back_is_not_observed) {
  vit3d_world w({{5, 4, 4}});
  w.run();
  w.attend(w.q_rope, w.k_rope);
  w.poison_rotation();
  const auto asked = find_check(w.judged(true), "K1r");
  EXPECT_FALSE(asked.observed);
  EXPECT_TRUE(asked.gate);
  EXPECT_TRUE(find_check(w.judged(true), "K1").passed);
  // Part of it is no choice.
  w.positions.set_int(0, 0);
  EXPECT_EQ(find_check(w.judged(true), "K0").kind, fail_kind::contract);
  EXPECT_FALSE(find_check(w.judged(false, true), "K1r").gate);
}

TEST(vit3d, faults_of_both_halves_are_seen) {
  vit3d_world w({{5, 4, 4}, {1, 2, 4}});
  const auto seen = [&](perturbation fault, bool bare) {
    w.targets = {fault};
    return expect(w.whole(bare), w.all_rows())->measure();
  };
  for (const auto fault : {perturbation::t_not_restarted, perturbation::axes_swapped, perturbation::segments_joined,
                           perturbation::neighbour_head_v})
    EXPECT_GT(seen(fault, false).value, 4) << name(fault);
  EXPECT_GT(seen(perturbation::segments_joined, true).value, 4);
}

}  // namespace
}  // namespace msabench::judge::test

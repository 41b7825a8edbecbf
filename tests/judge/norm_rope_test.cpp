// SPDX-License-Identifier: Apache-2.0
// Honest prologues pass under what they declare; gross faults fail.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <numbers>

#include "attend_world.h"
#include "core/poison.h"
#include "judge/detectability.h"
#include "judge/norm_rope_expectation.h"

namespace msabench::judge::test {
namespace {

float kept(float x) { return x; }
float flushed(float x) { return std::abs(x) < 0x1p-126F ? std::copysign(0.0F, x) : x; }

// How an implementation computes a head; faults and honest variants differ in one field.
struct method {
  dtype after_norm = fp32, in_rotation = fp32;
  float (*store)(float) = kept;  // after every operation
  double truncation = 0;         // of the output, in units of its last place
  std::function<float(float)> weight = nullptr;
  float eps = 1e-6F;
};

// A small case made by hand: one sequence with a prefix, one padding row.
struct norm_rope_world {
  static constexpr std::int64_t rows = 6, positions = 12;
  static constexpr std::int32_t heads[] = {3, 2, 2, 1};

  explicit norm_rope_world(dtype type, std::int32_t d = 16, std::int32_t di = 16, std::int32_t rope_dims = 8)
      : cos_sin(fp32, {positions, rope_dims}), cu_q(i32, {3}), kv_lens(i32, {2}) {
    agreed.operation = op::qk_norm_rope;
    agreed.hq = heads[0];
    agreed.hkv = agreed.hi = heads[1];
    agreed.d = d;
    agreed.di = di;
    agreed.rope_dims = rope_dims;
    agreed.norm_eps = 1e-6;
    agreed.q = agreed.kv = agreed.q_idx = agreed.k_idx = agreed.out = type;
    agreed.total_q = rows;
    agreed.batch = 2;
    agreed.max_kv_len = positions;
    declared = honest_numerics(type);
    for (std::size_t t = 0; t < 4; ++t) {
      const std::vector<std::int64_t> shape =
          t == 3 ? std::vector<std::int64_t>{rows, di} : std::vector<std::int64_t>{rows, heads[t], dim(t)};
      x[t] = tensor(type, shape);
      y[t] = tensor(type, shape);
      weight[t] = tensor(type, {dim(t)});
    }
    cu_q.set_int(1, 5);
    cu_q.set_int(2, 6);
    kv_lens.set_int(0, 11);  // positions 6 .. 10, then padding
    fill(1, 1, 0, 0.5);
  }

  std::int64_t dim(std::size_t t) const { return t < 2 ? agreed.d : agreed.di; }
  std::int64_t line(std::size_t t, std::int64_t row, std::int64_t head) const {
    return (row * heads[t] + head) * dim(t);
  }

  void fill(unsigned seed, double size, double weight_mean, double weight_spread) {
    std::mt19937 gen(seed);
    const auto uniform = [&] { return static_cast<double>(gen() >> 8) * 0x1p-23 - 1; };
    for (std::size_t t = 0; t < 4; ++t) {
      for (std::int64_t i = 0; i < x[t].desc.elements(); ++i)
        x[t].set(i, size * uniform() * static_cast<double>(i / dim(t) % 3 + 1));
      for (std::int64_t c = 0; c < dim(t); ++c) weight[t].set(c, weight_mean + weight_spread * uniform());
    }
    const std::int32_t half = agreed.rope_dims / 2;
    for (std::int64_t p = 0; p < positions; ++p)
      for (std::int32_t c = 0; c < half; ++c) {
        const double angle = std::numbers::pi * uniform();
        cos_sin.set(p * 2 * half + c, std::cos(angle));
        cos_sin.set(p * 2 * half + half + c, std::sin(angle));
      }
  }

  void run(const method& how) {
    for (std::size_t t = 0; t < 4; ++t)
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t head = 0; head < heads[t]; ++head) run_head(how, t, row, head);
  }

  void run_head(const method& how, std::size_t t, std::int64_t row, std::int64_t head) {
    const std::int64_t at = line(t, row, head), n = dim(t), half = agreed.rope_dims / 2;
    std::vector<float> v;
    float squares = 0;
    const auto put = [&](dtype type, float z) { return how.store(static_cast<float>(round_to(z, type))); };
    for (std::int64_t c = 0; c < n; ++c) {
      const auto z = static_cast<float>(x[t].get(at + c));
      squares = how.store(squares + how.store(z * z));
    }
    const float scale = 1 / std::sqrt(squares / static_cast<float>(n) + how.eps);
    for (std::int64_t c = 0; c < n; ++c) {
      const auto w = static_cast<float>(weight[t].get(c));
      const float normed =
          how.store(static_cast<float>(x[t].get(at + c)) * scale) * (how.weight ? how.weight(w) : 1 + w);
      v.push_back(put(how.after_norm, normed));
    }
    for (std::int64_t c = 0; c < half && row < 5; ++c) {
      const std::int64_t angles = (6 + row) * 2 * half;
      const float cosine = put(how.in_rotation, static_cast<float>(cos_sin.get(angles + c)));
      const float sine = put(how.in_rotation, static_cast<float>(cos_sin.get(angles + half + c)));
      const float a = v[static_cast<std::size_t>(c)], b = v[static_cast<std::size_t>(c + half)];
      const auto product = [&](float p, float q) { return put(how.in_rotation, p * q); };
      v[static_cast<std::size_t>(c)] = product(a, cosine) - product(b, sine);
      v[static_cast<std::size_t>(c + half)] = product(b, cosine) + product(a, sine);
    }
    for (std::int64_t c = 0; c < n; ++c) {
      const double z = v[static_cast<std::size_t>(c)];
      y[t].set(at + c, z - how.truncation * std::copysign(ulp_of(z, agreed.q), z));
    }
  }

  judge::subject subject() const {
    case_spec definition;
    definition.operation = op::qk_norm_rope;
    definition.family = "tokens";
    return {definition,
            agreed,
            delivers,
            declared,
            {{slot::q, x[0].view()},
             {slot::k, x[1].view()},
             {slot::q_idx, x[2].view()},
             {slot::k_idx, x[3].view()},
             {slot::q_norm, weight[0].view()},
             {slot::k_norm, weight[1].view()},
             {slot::q_idx_norm, weight[2].view()},
             {slot::k_idx_norm, weight[3].view()},
             {slot::cos_sin, cos_sin.view()},
             {slot::cu_seqlens_q, cu_q.view()},
             {slot::kv_lens, kv_lens.view()}},
            targets};
  }
  static std::vector<std::int64_t> all_rows() { return {0, 1, 2, 3, 4, 5}; }
  std::vector<check_result> checks() const {
    launch l;
    l.outputs = {{slot::q_rope, y[0].view()},
                 {slot::k_rope, y[1].view()},
                 {slot::q_idx_rope, y[2].view()},
                 {slot::k_idx_rope, y[3].view()}};
    return expect(subject(), all_rows())->check(l, 0, 0);
  }
  detectability sees(std::vector<perturbation> faults) {
    targets = std::move(faults);
    return expect(subject(), all_rows())->measure();
  }

  problem agreed;
  profile delivers;
  numerics declared;
  std::vector<perturbation> targets;
  tensor x[4], y[4], weight[4], cos_sin, cu_q, kv_lens;
};

// Sizes of heads, and weights, that the families have.
struct contents {
  double size, weight_mean, weight_spread;
};
constexpr contents many_contents[] = {
    {1, 0, 0.5}, {0x1p-10, 0, 0.5}, {0x1p-22, -0.9, 0.05}, {300, 0, 0.5}, {1, -1, 0x1p-8}};

TEST(norm_rope_checks, honest_methods_pass) {
  for (const auto type : {bf16, fp16, fp32})
    for (const auto& [size, mean, spread] : many_contents)
      for (const std::int32_t rope_dims : {0, 8, 16})
        for (unsigned seed = 0; seed < 6; ++seed) {
          norm_rope_world w(type, 16, 24, rope_dims);
          w.fill(seed, size, mean, spread);
          w.run({});
          EXPECT_TRUE(passes(w.checks())) << told(w.checks());
          w.run({.store = flushed});
          EXPECT_TRUE(passes(w.checks())) << told(w.checks());
          w.run({.after_norm = type});
          w.delivers.round_after_norm = true;
          EXPECT_TRUE(passes(w.checks())) << told(w.checks());
          w.run({.after_norm = type, .in_rotation = type});
          w.delivers.rotate_in_storage = true;
          EXPECT_TRUE(passes(w.checks())) << told(w.checks());
        }
}

TEST(norm_rope_limits, agree_with_the_formula_written_out) {
  norm_rope_world w(fp16, 16, 24, 8);
  const roundoffs r = resolve(w.agreed, w.declared);
  const auto s = w.subject();
  const auto in = [&](slot at) { return s.inputs.at(at); };
  const reference::qk_norm_rope_inputs inputs{w.agreed,
                                              in(slot::q),
                                              in(slot::k),
                                              in(slot::q_idx),
                                              in(slot::k_idx),
                                              in(slot::q_norm),
                                              in(slot::k_norm),
                                              in(slot::q_idx_norm),
                                              in(slot::k_idx_norm),
                                              in(slot::cos_sin),
                                              in(slot::cu_seqlens_q),
                                              in(slot::kv_lens)};
  for (const auto& row : reference::qk_norm_rope(inputs, w.all_rows())) {
    if (row.position < 0) continue;
    for (const bool mid : {false, true})
      for (const bool rotation : {false, true}) {
        profile f;
        f.round_after_norm = mid;
        f.rotate_in_storage = rotation;
        for (std::size_t c = 0; c < row.y.size(); ++c) {
          const bool rotated = c < 8;
          const double partner = rotated ? row.y[c < 4 ? c + 4 : c - 4] : 0;
          const double a = std::hypot(row.y[c], partner), dim = static_cast<double>(row.y.size());
          const double roundings = (mid ? 1 : 0) + (rotation ? 2 : 0), omega = 0x1p-25;
          const double want =
              1.02 * (0x1p-11 * std::abs(row.y[c]) + roundings * 0x1p-11 * a + (dim / 2 + 8) * 0x1p-24 * a + 0x1p-124 +
                      omega * (1 + (mid ? std::sqrt(2) : 0) + (rotation ? 2 : 0)));
          EXPECT_NEAR(limit_of_rotated(r, f, row, c).total, want, 1e-12 * want);
        }
      }
  }
}

// fp16, x = 2^-24, w = -0.9: the result is 100.1 of the format's smallest steps, and the nearest whole number of them is
// further away than a relative roundoff allows.
TEST(norm_rope_limits, results_below_the_normal_range_are_rounded_to_whole_steps) {
  norm_rope_world w(fp16);
  for (std::size_t t = 0; t < 4; ++t) {
    for (std::int64_t i = 0; i < w.x[t].desc.elements(); ++i) w.x[t].set(i, 0x1p-24);
    for (std::int64_t c = 0; c < w.dim(t); ++c) w.weight[t].set(c, -0.9);
  }
  w.run({});
  const auto k1 = find_check(w.checks(), "K1");
  EXPECT_TRUE(k1.passed) << told(w.checks());
  const double last = w.y[0].get(15), exact = 0x1p-24 / std::sqrt(0x1p-48 + 1e-6) * (1 + w.weight[0].get(15));
  EXPECT_EQ(last, round_to(exact, fp16));
  const double error = std::abs(last - exact), relative = 1.02 * (0x1p-11 + (16 / 2.0 + 8) * 0x1p-24) * exact;
  EXPECT_GT(error, relative);
  // A step further is no rounding.
  w.y[0].set(15, last + 0x1p-24);
  EXPECT_FALSE(find_check(w.checks(), "K1").passed);
}

// One in a thousand of random elements comes so near to the worst of its roundings that another one shows.
TEST(norm_rope_checks, an_undeclared_rounding_fails) {
  for (const auto type : {bf16, fp16}) {
    norm_rope_world w(type, 128, 128, 128);
    w.run({.after_norm = type});
    EXPECT_FALSE(find_check(w.checks(), "K1").passed);
    w.run({.after_norm = type, .in_rotation = type});
    w.delivers.round_after_norm = true;
    EXPECT_FALSE(find_check(w.checks(), "K1").passed);
  }
}

TEST(norm_rope_checks, faults_fail) {
  norm_rope_world w(bf16);
  w.run({.weight = [](float x) { return x; }});
  EXPECT_FALSE(passes(w.checks()));
  w.fill(2, 0x1p-10, 0, 0.5);
  w.run({.eps = 0});
  EXPECT_FALSE(passes(w.checks()));
}

TEST(norm_rope_checks, the_line_names_output_element_and_cure) {
  norm_rope_world w(bf16);
  w.run({.truncation = 0.5});
  const auto k1 = find_check(w.checks(), "K1");
  ASSERT_FALSE(k1.passed);
  EXPECT_EQ(k1.cure, "out_store bf16 truncated instead of to nearest");
  EXPECT_EQ(k1.terms.front().first, "out_store");
  w.run({});
  w.y[3].set(w.line(3, 2, 0) + 5, 77);
  const auto worst = find_check(w.checks(), "K1").worst;
  EXPECT_EQ(worst.where, slot::k_idx_rope);
  EXPECT_EQ(worst.axes, (std::vector<std::string>{"row", "channel"}));
  EXPECT_EQ(worst.index, (std::vector<std::int64_t>{2, 5}));
}

TEST(norm_rope_checks, padding_rows_are_written_and_that_is_all) {
  norm_rope_world w(bf16);
  w.run({});
  for (const double anything : {0.0, -7e30, std::nan("")}) {
    w.y[1].set(w.line(1, 5, 1) + 3, anything);
    EXPECT_TRUE(passes(w.checks())) << anything << told(w.checks());
  }
  const auto poison = poison_bits(bf16, 0, 0);
  std::memcpy(w.y[1].bytes.data() + 2 * (w.line(1, 5, 1) + 3), &poison, 2);
  const auto k0 = find_check(w.checks(), "K0");
  EXPECT_EQ(k0.kind, fail_kind::contract);
  EXPECT_EQ(k0.worst.where, slot::k_rope);
  EXPECT_EQ(k0.worst.index, (std::vector<std::int64_t>{5, 1, 3}));
  w.run({});
  w.y[0].set(4, std::nan(""));
  EXPECT_EQ(find_check(w.checks(), "K0").kind, fail_kind::nonfinite);
}

TEST(norm_rope_detectability, every_fault_shows_where_it_can) {
  norm_rope_world w(bf16);
  const auto sees =
      w.sees({perturbation::weight_without_one, perturbation::norm_across_heads, perturbation::position_after,
              perturbation::position_in_chunk, perturbation::rope_all_dims, perturbation::rope_interleaved,
              perturbation::rope_backwards, perturbation::main_norm_for_index, perturbation::rounded_after_norm});
  EXPECT_EQ(sees.by_fault.size(), 9U);
  EXPECT_GE(sees.value, 4) << sees.weakest_fault;
  EXPECT_LT(w.sees({perturbation::eps_missing}).value, 4);
  w.fill(1, 0x1p-10, 0, 0.5);
  EXPECT_GE(w.sees({perturbation::eps_missing}).value, 4);
}

TEST(norm_rope_detectability, what_cannot_show_does_not) {
  norm_rope_world whole(fp32, 16, 16, 16), none(fp32, 16, 24, 0);
  EXPECT_EQ(whole.sees({perturbation::rope_all_dims}).value, 0);
  for (const auto fault : {perturbation::rope_backwards, perturbation::rope_interleaved, perturbation::position_after,
                           perturbation::main_norm_for_index})
    EXPECT_EQ(none.sees({fault}).value, 0);
}

TEST(norm_rope_detectability, a_declared_rounding_is_no_fault) {
  norm_rope_world w(bf16);
  w.delivers.round_after_norm = true;
  EXPECT_EQ(w.sees({perturbation::rope_backwards, perturbation::rounded_after_norm}).by_fault.size(), 1U);
}

}  // namespace
}  // namespace msabench::judge::test

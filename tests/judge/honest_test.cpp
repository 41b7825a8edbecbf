// SPDX-License-Identifier: Apache-2.0
// Honest implementations pass under what they declare, and the same rounding undeclared is told with its cure.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "attend_world.h"
#include "judge/attend_expectation.h"

namespace msabench::judge::test {
namespace {

struct honest {
  std::string name;
  variant how;
  void (*declare)(numerics&);
};

void keep(numerics&) {}

const std::vector<honest>& honest_kinds() {
  static const std::vector<honest> all = [] {
    std::vector<honest> list;
    const auto add = [&](std::string name, variant how, void (*declare)(numerics&)) {
      list.push_back({std::move(name), std::move(how), declare});
    };
    add("plain", {}, keep);
    add("reversed", {.reversed = true}, keep);
    add("rounded_p", {.p = bf16}, keep);
    add("truncated_p", {.p = bf16, .truncates_p = true}, [](numerics& n) { n.truncated = truncates_p; });
    add("sum_of_rounded_p", {.p = bf16, .sum_of_rounded_p = true}, [](numerics& n) { n.lse_from_rounded_p = 1; });
    add("truncated_output", {.truncates_out = true}, [](numerics& n) { n.truncated = truncates_out; });
    add("exp2", {.exp2 = true}, [](numerics& n) { n.exp_rel_error = 0x1p-20F; });
    add("splits", {.splits = 5}, keep);
    add("more_splits_than_keys", {.splits = 64}, keep);
    add("narrow_partials", {.partial = bf16, .splits = 3}, [](numerics& n) { n.partial_store = bf16; });
    return list;
  }();
  return all;
}

class honest_implementation : public testing::TestWithParam<std::size_t> {};

TEST_P(honest_implementation, passes_random_values_at_every_sharpness) {
  const auto& kind = honest_kinds()[GetParam()];
  for (const double sharpness : {0.0, 0.3, 1.0, 4.0})
    for (unsigned seed = 0; seed < 4; ++seed) {
      attend_world w({.sequences = {{20, 45}, {3, 3}, {1, 70}}});
      w.fill_random(seed, sharpness);
      kind.declare(w.declared);
      ASSERT_TRUE(broken_declarations(w.agreed, w.declared, w.delivers).empty());
      w.run(kind.how);
      const auto checks = checks_of(w);
      EXPECT_TRUE(passes(checks)) << kind.name << " sharpness " << sharpness << " seed " << seed << "\n"
                                  << told(checks);
    }
}

TEST_P(honest_implementation, passes_the_codes) {
  const auto& kind = honest_kinds()[GetParam()];
  for (const std::string family : {"block_code", "key_code"}) {
    attend_world w({.sequences = {{20, 45}, {1, 70}}}, family);
    family == "block_code" ? w.fill_block_code() : w.fill_key_code(4);
    kind.declare(w.declared);
    w.run(kind.how);
    const auto checks = checks_of(w);
    EXPECT_TRUE(passes(checks)) << kind.name << " " << family << "\n" << told(checks);
    EXPECT_TRUE(find_check(checks, "K3").observed);
  }
}

TEST_P(honest_implementation, passes_the_carry_probe_without_splits) {
  auto kind = honest_kinds()[GetParam()];
  kind.how.splits = 1;
  attend_world w({.d = 32, .block = 32, .topk = 8, .sequences = {{2, 300}}}, "carry");
  w.fill_carry();
  kind.declare(w.declared);
  w.run(kind.how);
  const auto checks = checks_of(w);
  EXPECT_TRUE(passes(checks)) << kind.name << "\n" << told(checks);
}

INSTANTIATE_TEST_SUITE_P(kinds, honest_implementation, testing::Range<std::size_t>(0, honest_kinds().size()),
                         [](const auto& about) { return honest_kinds()[about.param].name; });

TEST(honest_types, fp16_and_fp32_pass_within_their_own_limits) {
  for (const dtype type : {fp16, fp32}) {
    attend_world w({.sequences = {{20, 45}, {1, 70}}, .type = type});
    w.fill_random(7);
    w.run({.p = type});
    const auto checks = checks_of(w);
    EXPECT_TRUE(passes(checks)) << name(type) << "\n" << told(checks);
  }
}

TEST(honest_types, base_two_sums_arrive_converted) {
  attend_world w({});
  w.fill_random(3);
  w.delivers.lse = lse_form::base2;
  w.run({});
  const auto checks = checks_of(w);
  EXPECT_TRUE(passes(checks)) << told(checks);
}

TEST(honest_types, no_lse_is_not_observed) {
  attend_world w({});
  w.fill_random(3);
  w.delivers.lse = lse_form::none;
  w.run({});
  const auto k2 = find_check(checks_of(w), "K2");
  EXPECT_FALSE(k2.observed);
  EXPECT_FALSE(k2.passed);
}

TEST(honest_types, empty_rows_and_padding_pass) {
  attend_world w({.sequences = {{1, 0}, {3, 1}, {2, 20}}});
  w.fill_random(3);
  w.run({});
  const auto checks = checks_of(w);
  EXPECT_TRUE(passes(checks)) << told(checks);
}

TEST(cure, names_the_number_that_was_not_declared) {
  struct undeclared {
    variant how;
    std::string cure;
  };
  const undeclared list[] = {
      {{.p = bf16}, "p_operand bf16 instead of fp32"},
      {{.p = bf16, .sum_of_rounded_p = true}, "lse_from_rounded_p 1"},
  };
  for (const auto& u : list) {
    attend_world w({.d = 32, .block = 16, .topk = 4, .sequences = {{8, 200}}, .type = bf16});
    w.fill_random(11);
    w.declared.p_operand = u.how.sum_of_rounded_p ? bf16 : fp32;
    // The output's own rounding would hide that of P.
    w.agreed.out = fp32;
    w.declared.out_store = fp32;
    w.out = tensor(fp32, {w.rows(), w.shape.hq, w.shape.d});
    w.run(u.how);
    const auto checks = checks_of(w);
    const auto failing = find_check(checks, u.how.sum_of_rounded_p ? "K2" : "K1");
    EXPECT_FALSE(failing.passed);
    EXPECT_EQ(failing.cure, u.cure) << told(checks);
  }
}

TEST(cure, proposes_no_accumulator_as_an_operand) {
  attend_world w({.d = 32, .block = 16, .topk = 4, .sequences = {{1, 200}}, .type = bf16});
  w.fill_random(11);
  w.agreed.out = fp32;
  w.declared.out_store = w.declared.p_operand = fp32;
  w.out = tensor(fp32, {w.rows(), w.shape.hq, w.shape.d});
  w.run({.p = fp32});
  const double limit = find_check(checks_of(w), "K1").limit;
  const auto at = w.out.view().offset(0, 0, 0);
  w.out.set(at, w.out.view().at(0, 0, 0) + 16 * limit);
  const auto checks = checks_of(w);
  const auto k1 = find_check(checks, "K1");
  EXPECT_FALSE(k1.passed);
  EXPECT_TRUE(k1.cure.starts_with("p_operand ")) << told(checks);
  EXPECT_EQ(k1.cure.find("fp8acc"), std::string::npos) << told(checks);
}

TEST(cure, is_empty_for_a_fault_that_no_declaration_explains) {
  attend_world w({});
  w.fill_random(5);
  w.run({.scale_factor = 2});
  const auto checks = checks_of(w);
  EXPECT_FALSE(find_check(checks, "K1").passed);
  EXPECT_EQ(find_check(checks, "K1").cure, "") << told(checks);
}

// Random errors of the declared size, everywhere at once, stay below the limit; ones ten times larger do not.
TEST(limits_hold, for_any_perturbation_within_the_declaration) {
  std::mt19937 gen(99);
  const auto sign = [&] { return (gen() & 1) != 0 ? 1.0 : -1.0; };
  const double u_p = 0x1p-8, u_o = 0x1p-8, c_e = 0x1p-22;
  for (const double size : {1.0, 10.0}) {
    double worst = 0;
    for (unsigned seed = 0; seed < 6; ++seed) {
      attend_world w({.sequences = {{20, 61}}});
      w.fill_random(seed, 1 + seed % 3);
      w.agreed.out = fp32;
      w.out = tensor(fp32, {w.rows(), w.shape.hq, w.shape.d});
      w.declared.out_store = bf16;
      for (std::int64_t row = 0; row < w.rows(); ++row)
        for (std::int64_t head = 0; head < w.shape.hq; ++head) {
          const auto keys = reference::attended_keys(attend_inputs_of(w.subject()), row, head);
          double sum = 0;
          std::vector<double> o(static_cast<std::size_t>(w.shape.d));
          for (const auto& k : keys) {
            const double e = k.weight * (1 + sign() * size * c_e);
            const double p = e * (1 + sign() * size * u_p);
            sum += e;
            for (std::size_t c = 0; c < o.size(); ++c) o[c] += p * w.v.view().at(k.key, head / w.agreed.group(), c);
          }
          for (std::size_t c = 0; c < o.size(); ++c)
            w.out.set(w.out.view().offset(row, head, c), o[c] / sum * (1 + sign() * size * u_o));
        }
      w.delivers.lse = lse_form::none;
      const auto checks = checks_of(w);
      const auto k1 = find_check(checks, "K1");
      worst = std::max(worst, k1.value / k1.limit);
    }
    if (size == 1.0)
      EXPECT_LE(worst, 1);
    else
      EXPECT_GT(worst, 1);
  }
}

}  // namespace
}  // namespace msabench::judge::test

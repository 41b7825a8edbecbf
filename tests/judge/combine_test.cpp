// SPDX-License-Identifier: Apache-2.0
// Honest ways to put partial results together pass, whatever the data do to them; gross faults fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numbers>

#include "attend_world.h"
#include "core/poison.h"
#include "judge/combine_expectation.h"
#include "judge/detectability.h"

namespace msabench::judge::test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

float flushed(float x) { return std::abs(x) < 0x1p-126F ? std::copysign(0.0F, x) : x; }
float kept(float x) { return x; }

// A small case made by hand, and single-precision implementations of it.
struct combine_world {
  combine_world(std::int64_t parts, std::int64_t rows, std::int32_t heads, std::int32_t d, dtype partial,
                dtype out_type)
      : partial_out(partial, {parts, rows, heads, d}),
        partial_lse(fp32, {parts, rows, heads}),
        out(out_type, {rows, heads, d}),
        lse(fp32, {rows, heads}) {
    agreed.operation = op::combine;
    agreed.hq = agreed.hkv = agreed.hi = heads;
    agreed.d = agreed.di = d;
    agreed.q = agreed.kv = agreed.out = out_type;
    agreed.partial = partial;
    agreed.total_q = rows;
    agreed.splits = static_cast<std::int32_t>(parts);
    declared = honest_numerics(out_type);
  }

  std::int64_t parts() const { return partial_out.desc.shape[0]; }
  std::int64_t rows() const { return partial_out.desc.shape[1]; }
  float lse_at(std::int64_t p, std::int64_t row, std::int64_t head) const {
    return static_cast<float>(partial_lse.view().at(p, row, head));
  }
  float value_at(std::int64_t p, std::int64_t row, std::int64_t head, std::int64_t c) const {
    return static_cast<float>(partial_out.view().at(p, row, head, c));
  }
  void set_lse(std::int64_t p, std::int64_t row, std::int64_t head, double x) {
    partial_lse.set(partial_lse.view().offset(p, row, head), x);
  }
  void set_values(std::int64_t p, std::int64_t row, std::int64_t head, const std::function<double(std::int64_t)>& x) {
    for (std::int64_t c = 0; c < agreed.d; ++c) partial_out.set(partial_out.view().offset(p, row, head, c), x(c));
  }

  // Every third part of a row has no keys and NaN; the last row none at all.
  void fill(unsigned seed, double level, double spread) {
    std::mt19937 gen(seed);
    const auto uniform = [&] { return static_cast<double>(gen() >> 8) * 0x1p-23 - 1; };
    for (std::int64_t p = 0; p < parts(); ++p)
      for (std::int64_t row = 0; row < rows(); ++row)
        for (std::int64_t h = 0; h < agreed.hq; ++h) {
          const bool empty = row + 1 == rows() || (parts() > 2 && (p + row) % 3 == 0);
          set_lse(p, row, h, empty ? -infinity : level + spread * uniform());
          set_values(p, row, h, [&](auto) { return empty ? std::nan("") : 2 * uniform(); });
        }
  }

  judge::subject subject() const {
    case_spec definition;
    definition.operation = op::combine;
    definition.family = "partials";
    return {definition,
            agreed,
            delivers,
            declared,
            {{slot::partial_out, partial_out.view()}, {slot::partial_lse, partial_lse.view()}},
            targets};
  }
  std::vector<std::int64_t> all_rows() const {
    std::vector<std::int64_t> all;
    for (std::int64_t i = 0; i < rows(); ++i) all.push_back(i);
    return all;
  }
  std::vector<check_result> checks(int launch_index = 0) const {
    launch l;
    l.outputs = {{slot::out, out.view()}, {slot::lse, lse.view()}};
    return expect(subject(), all_rows())->check(l, launch_index, 0);
  }

  // How an implementation computes a row and head; faults and honest variants differ in one field.
  struct method {
    bool by_lse = false, reversed = false, exp2 = false;
    float (*store)(float) = kept;  // after every operation
    std::function<void(std::vector<float>& lse)> edit_lse = nullptr;
    bool keeps_maximum = false, divides = true, skips_empty = true;
    double truncation = 0;  // of the output, in units of its last place
  };
  void run(const method& how) {
    for (std::int64_t row = 0; row < rows(); ++row)
      for (std::int64_t h = 0; h < agreed.hq; ++h) run_row(how, row, h);
  }

  void run_row(const method& how, std::int64_t row, std::int64_t h) {
    std::vector<float> sums;
    std::vector<std::int64_t> order;
    for (std::int64_t p = 0; p < parts(); ++p) {
      sums.push_back(lse_at(p, row, h));
      order.push_back(p);
    }
    if (how.edit_lse) how.edit_lse(sums);
    if (how.reversed) std::ranges::reverse(order);
    const float a = sums.empty() ? -infinity : *std::ranges::max_element(sums);
    const auto line = out.view().offset(row, h), sum_at = lse.view().offset(row, h);
    if (a == -infinity && how.skips_empty) {
      for (std::int64_t c = 0; c < agreed.d; ++c) out.set(line + c, 0);
      lse.set(sum_at, -infinity);
      return;
    }
    const auto exp = [&](float x) {
      return how.store(how.exp2 ? std::exp2(x * std::numbers::log2e_v<float>) : std::exp(x));
    };
    const float shift = how.keeps_maximum ? 0 : a;
    float sum = 0;
    for (const auto p : order)
      if (!how.skips_empty || sums[p] != -infinity) sum = how.store(sum + exp(sums[p] - shift));
    const float total = shift + std::log(sum);
    lse.set(sum_at, total);
    for (std::int64_t c = 0; c < agreed.d; ++c) {
      float o = 0;
      for (const auto p : order) {
        if (how.skips_empty && sums[p] == -infinity) continue;
        const float weight = exp(sums[p] - (how.by_lse ? total : shift));
        o = how.store(o + how.store(weight * value_at(p, row, h, c)));
      }
      if (!how.by_lse && how.divides) o = how.store(o / sum);
      out.set(line + c, o - how.truncation * std::copysign(ulp_of(o, agreed.out), static_cast<double>(o)));
    }
  }

  problem agreed;
  profile delivers;
  numerics declared;
  std::vector<perturbation> targets;
  tensor partial_out, partial_lse, out, lse;
};

using method = combine_world::method;

TEST(combine_checks, honest_methods_pass) {
  const std::pair<const char*, method> methods[] = {{"plain", {}},
                                                    {"by_lse", {.by_lse = true}},
                                                    {"reversed", {.reversed = true}},
                                                    {"exp2", {.exp2 = true}},
                                                    {"flushing", {.store = flushed}}};
  for (const auto type : {bf16, fp16, fp32})
    for (const std::int64_t parts : {0, 1, 2, 9, 64})
      for (const double level : {0.0, 7.0, -300.0, 1000.0})
        for (const double spread : {0.3, 5.0, 100.0})
          for (const auto& [name, how] : methods) {
            combine_world w(parts, 4, 2, 16, parts == 9 ? type : fp32, type);
            w.fill(3, level, spread);
            w.run(how);
            EXPECT_TRUE(passes(w.checks()))
                << name << " parts " << parts << " level " << level << " spread " << spread << "\n"
                << told(w.checks());
          }
}

// The formulas of docs/verdicts.md written out once more, from single parts.
TEST(combine_limits, agree_with_the_formulas_written_out) {
  combine_world w(7, 3, 2, 8, fp32, fp16);
  w.fill(5, 12, 6);
  w.declared.exp_rel_error = 0x1p-20F;
  const roundoffs r = resolve(w.agreed, w.declared);
  const auto s = w.subject();
  const auto rows = w.all_rows();
  const reference::combine_inputs in{w.agreed, s.inputs.at(slot::partial_out), s.inputs.at(slot::partial_lse)};
  int judged = 0;
  for (const auto& row : reference::combine(in, rows)) {
    if (row.partials == 0) continue;
    ++judged;
    for (std::int64_t c = 0; c < w.agreed.d; ++c) {
      long double a = -infinity, sum = 0, o = 0, magnitude = 0, arguments = 0, distance = 0, sizes = 0, n = 0;
      const auto lse = [&](std::int64_t p) { return static_cast<long double>(w.lse_at(p, row.row, row.head)); };
      for (std::int64_t p = 0; p < 7; ++p) a = std::max(a, lse(p));
      for (std::int64_t p = 0; p < 7; ++p) sum += std::exp(lse(p) - a);
      for (std::int64_t p = 0; p < 7; ++p) {
        if (lse(p) == -infinity) continue;
        const long double pi = std::exp(lse(p) - a) / sum, value = w.value_at(p, row.row, row.head, c);
        ++n;
        o += pi * value;
        magnitude += pi * std::abs(value);
        arguments += pi * std::abs(value) * (a - lse(p));
        distance += pi * (a - lse(p));
        sizes += std::abs(value);
      }
      const long double total = a + std::log(sum), u = 0x1p-24L, chain = (n + 2) * u / (1 - (n + 2) * u);
      o = std::abs(o);
      const long double both = magnitude + o;
      const long double h = 1.02L * (r.u_o * o + (chain + 0x1p-20L + 4 * u * (std::abs(a) + std::abs(total))) * both +
                                     4 * u * (arguments + distance * o) + 0x1p-22L * o + r.omega_o +
                                     0x1p-126L * (sizes + n * o + 3 * n + 2));
      const double got = limit_of_combined(r, row, static_cast<std::size_t>(c)).total, want = static_cast<double>(h);
      EXPECT_NEAR(got, want, 1e-9 * want);
      const long double of_lse =
          0x1p-20L + 0x1p-22L + n * u / (1 - n * u) + 4 * u * distance + 2 * u * (std::abs(a) + std::abs(total));
      EXPECT_NEAR(limit_of_combined_lse(r, row).total, static_cast<double>(of_lse), 1e-9 * static_cast<double>(of_lse));
    }
  }
  EXPECT_EQ(judged, 4);
}

// Limits that count the roundings of the numerator alone, and no underflow: what honest results exceed.
double numerator_alone(const roundoffs& r, const reference::combine_row& row, std::size_t c) {
  const double relative = gamma(row.partials + 2, u32) + 2 * r.c_e + u32 * std::abs(row.lse);
  // Nor is anything flushed.
  const double omega = std::min(r.omega_o, 0x1p-150);
  return r.u_o * std::abs(row.out[c]) + omega + relative * row.magnitude[c] + 4 * u32 * row.exponents[c];
}

void expect_only_the_full_limit_holds(const combine_world& w, std::size_t channel) {
  const roundoffs r = resolve(w.agreed, w.declared);
  const auto s = w.subject();
  const std::int64_t rows[] = {0};
  const auto row =
      reference::combine({w.agreed, s.inputs.at(slot::partial_out), s.inputs.at(slot::partial_lse)}, rows)[0];
  const double error = std::abs(w.out.get(static_cast<std::int64_t>(channel)) - row.out[channel]);
  EXPECT_GT(error, numerator_alone(r, row, channel));
  EXPECT_LE(error, limit_of_combined(r, row, channel).total);
  EXPECT_TRUE(passes(w.checks())) << told(w.checks());
}

// 63 weights just below half a unit in the last place of 1: added one by one to a sum of 1 they are lost, while their
// products, just above it, are rounded up. Numerator and denominator drift apart by one roundoff each at every part.
TEST(combine_limits, numerator_and_denominator_drift_apart) {
  combine_world w(64, 1, 1, 1, fp32, fp32);
  for (std::int64_t p = 0; p < 64; ++p) {
    w.set_lse(p, 0, 0, p == 0 ? 0 : std::log(0.9995 * 0x1p-24));
    w.set_values(p, 0, 0, [&](auto) { return p == 0 ? 1 : 1.002; });
  }
  w.run({});
  EXPECT_GT(w.out.get(0), 1 + 120 * 0x1p-24);
  expect_only_the_full_limit_holds(w, 0);
}

// A channel that the heavy part leaves at 0 has nothing but a weight of exp(-87.5), which a device that flushes
// subnormals does not have.
TEST(combine_limits, weights_that_underflow_may_be_lost) {
  for (const auto type : {bf16, fp32}) {
    combine_world w(2, 1, 1, 2, fp32, type);
    w.set_lse(0, 0, 0, 0);
    w.set_lse(1, 0, 0, -87.5);
    w.set_values(0, 0, 0, [](std::int64_t c) { return c == 0 ? 1 : 0; });
    w.set_values(1, 0, 0, [](auto) { return 0.75; });
    w.run({.store = flushed});
    EXPECT_EQ(w.out.get(1), 0);
    expect_only_the_full_limit_holds(w, 1);
    w.run({});
    EXPECT_GT(w.out.get(1), 0);
    EXPECT_TRUE(passes(w.checks())) << told(w.checks());
    // Nothing else hides behind that.
    w.out.set(1, 0x1p-122);
    EXPECT_FALSE(find_check(w.checks(), "K1").passed);
  }
}

TEST(combine_limits, terms_add_up_and_are_never_nan) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const double x : {0.0, 1.0, 1e300, inf}) {
    reference::combine_row row;
    row.partials = 3;
    row.a = row.lse = row.distance = x;
    row.out = row.magnitude = row.exponents = row.sizes = {x};
    roundoffs r;
    r.u_o = r.c_e = r.c_l = r.omega_o = 0x1p-8;
    const auto limit = limit_of_combined(r, row, 0);
    EXPECT_FALSE(std::isnan(limit.total));
    EXPECT_FALSE(std::isnan(limit_of_combined_lse(r, row).total));
    double sum = 0;
    for (const auto& [term, size] : listed(limit)) sum += size;
    if (std::isfinite(limit.total)) {
      EXPECT_NEAR(sum, limit.total, 1e-12 * limit.total);
    }
  }
}

combine_world usual_case(dtype type = bf16) {
  combine_world w(8, 5, 2, 32, fp32, type);
  w.fill(9, 5, 1);
  return w;
}

TEST(combine_checks, faults_fail) {
  const std::pair<const char*, method> faults[] = {
      {"base 2",
       {.edit_lse =
            [](std::vector<float>& lse) {
              for (float& x : lse) x *= std::numbers::ln2_v<float>;
            }}},
      {"no division", {.divides = false}},
      {"forgotten part", {.edit_lse = [](std::vector<float>& lse) { lse[4] = lse[5] = -infinity; }}},
      {"a part twice as heavy", {.edit_lse = [](std::vector<float>& lse) { lse[4] += 0.7F, lse[5] += 0.7F; }}},
      {"empty parts multiplied", {.skips_empty = false}}};
  for (const auto& [name, how] : faults) {
    auto w = usual_case();
    w.run(how);
    EXPECT_FALSE(passes(w.checks())) << name;
  }
  for (const double level : {300.0, -300.0}) {
    combine_world w(8, 5, 2, 32, fp32, bf16);
    w.fill(9, level, 1);
    w.run({.keeps_maximum = true});
    EXPECT_EQ(find_check(w.checks(), "K1").kind, fail_kind::nonfinite);
  }
}

TEST(combine_checks, nothing_combined_is_exactly_nothing) {
  for (const std::int64_t parts : {0, 3}) {
    combine_world w(parts, 1, 2, 8, bf16, bf16);
    w.fill(1, 0, 1);
    w.run({});
    EXPECT_TRUE(passes(w.checks())) << told(w.checks());
    // A profile that leaves empty rows of attention undefined does not speak of these.
    w.delivers.empty_row = empty_form::undefined;
    w.out.set(3, 0x1p-100);
    EXPECT_EQ(find_check(w.checks(), "K0").kind, fail_kind::numeric);
    w.out.set(3, 0);
    w.lse.set(1, -3e38);
    EXPECT_EQ(find_check(w.checks(), "K0").worst.where, slot::lse);
    w.lse.set(1, std::nan(""));
    EXPECT_FALSE(find_check(w.checks(), "K0").passed);
  }
}

TEST(combine_checks, unwritten_elements_break_the_contract) {
  auto w = usual_case();
  w.run({});
  for (std::size_t i = 0; i < 2; ++i) {
    const auto bits = poison_bits(bf16, 0, 0);
    std::memcpy(w.out.bytes.data() + 2 * (40 + i), &bits, 2);
  }
  const auto k0 = find_check(w.checks(), "K0");
  EXPECT_EQ(k0.kind, fail_kind::contract);
  EXPECT_EQ(k0.worst.index, (std::vector<std::int64_t>{0, 1, 8}));
}

TEST(combine_checks, the_line_names_element_limit_and_cure) {
  auto w = usual_case();
  w.run({.truncation = 0.5});
  const auto k1 = find_check(w.checks(), "K1");
  ASSERT_FALSE(k1.passed);
  EXPECT_EQ(k1.worst.axes, (std::vector<std::string>{"row", "head", "channel"}));
  EXPECT_EQ(k1.worst.index.size(), 3U);
  EXPECT_EQ(k1.terms.front().first, "out_store");
  EXPECT_EQ(k1.cure, "out_store bf16 truncated instead of to nearest");
  w.declared.truncated = truncates_out;
  EXPECT_TRUE(passes(w.checks())) << told(w.checks());
  w.run({.truncation = 40});
  EXPECT_EQ(find_check(w.checks(), "K1").cure, "");
}

TEST(combine_checks, a_store_coarser_than_the_output_breaks_the_promise) {
  auto w = usual_case();
  w.declared.out_store = e4m3;
  EXPECT_FALSE(broken_declarations(w.agreed, w.declared, w.delivers).empty());
}

TEST(combine_detectability, every_fault_shows_where_it_can) {
  auto w = usual_case();
  w.targets = {perturbation::drop_partial,      perturbation::double_partial,      perturbation::base2_partials,
               perturbation::weights_unscaled,  perturbation::empty_partial_leaks, perturbation::nothing_is_nan,
               perturbation::neighbour_head_lse};
  const auto sees = expect(w.subject(), w.all_rows())->measure();
  EXPECT_TRUE(sees.judged);
  EXPECT_EQ(sees.by_fault.size(), w.targets.size());
  EXPECT_GE(sees.value, 100) << sees.weakest_fault;
  w.targets = {perturbation::maximum_kept};
  EXPECT_EQ(expect(w.subject(), w.all_rows())->measure().value, 0);
  w.fill(9, -300, 1);
  EXPECT_EQ(expect(w.subject(), w.all_rows())->measure().value, unbounded_effect);
}

TEST(combine_detectability, one_part_hides_what_needs_two) {
  combine_world w(1, 4, 1, 8, fp32, bf16);
  w.fill(2, 3, 1);
  w.targets = {perturbation::weights_unscaled};
  EXPECT_EQ(expect(w.subject(), w.all_rows())->measure().value, 0);
  w.targets = {perturbation::drop_partial};
  EXPECT_GE(expect(w.subject(), w.all_rows())->measure().value, 4);
}

}  // namespace
}  // namespace msabench::judge::test

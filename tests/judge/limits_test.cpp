// SPDX-License-Identifier: Apache-2.0
#include "judge/limits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "attend_world.h"
#include "judge/attend_expectation.h"

namespace msabench::judge::test {
namespace {

// The formulas of docs/verdicts.md written out once more, from single keys.
struct slow_limits {
  double h, lse, sigma;
};

slow_limits compute(const attend_world& w, std::int64_t row, std::int64_t head, std::int64_t channel,
                    const roundoffs& r) {
  const auto in = attend_inputs_of(w.subject());
  const auto keys = reference::attended_keys(in, row, head);
  const double n = static_cast<double>(keys.size());
  std::vector<long double> p, eta, v, e2;
  long double m = -1e300L, sum = 0, o = 0;
  for (const auto& k : keys) m = std::max<long double>(m, k.score);
  for (const auto& k : keys) sum += std::exp(k.score - m);
  const long double big_l = m + std::log(sum);
  const double chain = static_cast<double>(r.kappa_s) * r.u_m_score, gs = chain / (1 - chain);
  for (const auto& k : keys) {
    long double g = 0, squares = 0;
    for (std::int64_t c = 0; c < w.shape.d; ++c) {
      const double product = w.q.view().at(row, head, c) * w.k.view().at(k.key, head / w.agreed.group(), c);
      g += std::abs(product);
      squares += product * product;
    }
    const double scale = w.agreed.softmax_scale;
    const long double s = k.score;
    const long double delta = (r.n_in * r.u_in + gs) * g * scale + r.u_s * std::abs(s);
    const long double theta = delta + r.c_e + 4 * 0x1p-24 * (std::abs(s - m) + std::abs(m));
    p.push_back(std::exp(s - big_l));
    eta.push_back(std::exp(theta) - 1);
    v.push_back(w.v.view().at(k.key, head / w.agreed.group(), channel));
    e2.push_back(r.u_s * r.u_s * s * s / 3 + r.n_in * r.u_in * r.u_in / 3 * scale * scale * squares + r.c_e * r.c_e +
                 std::pow(4 * 0x1p-24 * std::abs(s), 2));
    o += p.back() * v.back();
  }
  long double a = 0, d = 0, eb = 0, e1 = 0, x = 0, q = 0, spread = 0;
  for (std::size_t j = 0; j < p.size(); ++j) {
    a += p[j] * std::abs(v[j]);
    d += p[j] * std::abs(v[j] - o);
    eb += p[j] * eta[j];
    e1 += p[j] * eta[j] * std::abs(v[j] - o);
    x += std::max(std::abs(v[j]), std::abs(v[j] - o));
    q += p[j] * p[j] * v[j] * v[j];
    spread += p[j] * p[j] * e2[j] * (v[j] - o) * (v[j] - o);
  }
  const auto g_of = [](double k, double u) { return k * u / (1 - k * u); };
  const double ko = static_cast<double>(r.kappa_o(keys.size())), kl = static_cast<double>(r.kappa_l(keys.size()));
  const long double oo = std::abs(o);
  slow_limits s{};
  s.h = static_cast<double>(1.02L * (r.u_o * oo + r.u_p * std::max(a, d) + (r.u_a + r.u_v) * a +
                                     g_of(ko, r.u_m_out) * (a + oo) + (1 + eb) * e1 +
                                     (r.c_e + r.c_l + 2 * 0x1p-24 * (std::abs(m) + std::abs(big_l))) * oo + r.omega_o +
                                     r.omega_p * std::exp(m - big_l) * x));
  s.lse =
      static_cast<double>(std::log(1 + eb) + g_of(kl, 0x1p-24) + r.c_l + 4 * 0x1p-24 * (std::abs(m) + std::abs(big_l)) +
                          (r.lse_from_rounded_p ? r.u_p + n * r.omega_p * std::exp(m - big_l) : 0.0L));
  s.sigma = static_cast<double>(std::sqrt(r.u_o * r.u_o / 3 * o * o +
                                          (r.u_p * r.u_p + r.u_a * r.u_a + r.u_v * r.u_v) / 3 * q + spread +
                                          std::pow(8 * r.u_m_out * a, 2) + r.omega_o * r.omega_o));
  return s;
}

TEST(limits, agree_with_the_formulas_written_out) {
  for (const int kind : {0, 1, 2}) {
    attend_world w({.sequences = {{6, 45}}, .type = kind == 1 ? fp16 : bf16});
    w.fill_random(3, 2);
    if (kind == 2) {
      w.declared.score_store = bf16;
      w.declared.rounded_operands = 1;
      w.declared.partial_store = bf16;
      w.declared.lse_from_rounded_p = 1;
      w.declared.chain_out = 7;
      w.declared.chain_row_sum = 9;
      w.declared.truncated = truncates_p | truncates_out;
      w.declared.exp_rel_error = 0x1p-19F;
    }
    ASSERT_TRUE(broken_declarations(w.agreed, w.declared, w.delivers).empty());
    const roundoffs r = resolve(w.agreed, w.declared);
    const auto rows = w.all_rows();
    for (const auto& row : reference::attend(attend_inputs_of(w.subject()), rows, score_error_of(r)))
      for (const std::int64_t c : {0, 7, 15}) {
        const auto slow = compute(w, row.row, row.head, c, r);
        const auto h = limit_of_output(r, row, static_cast<std::size_t>(c));
        EXPECT_NEAR(h.total, slow.h, 1e-9 * slow.h);
        EXPECT_NEAR(limit_of_lse(r, row).total, slow.lse, 1e-9 * slow.lse);
        EXPECT_NEAR(expected_error(r, row, static_cast<std::size_t>(c)), slow.sigma, 1e-9 * slow.sigma);
        double sum = 0;
        for (const auto& [term, size] : listed(h)) sum += size;
        EXPECT_NEAR(sum, h.total, 1e-12 * h.total);
      }
  }
}

TEST(limits, terms_are_listed_largest_first) {
  attend_world w({});
  w.fill_random(3);
  const roundoffs r = resolve(w.agreed, w.declared);
  const auto rows = w.all_rows();
  const auto all = reference::attend(attend_inputs_of(w.subject()), rows, score_error_of(r));
  const auto terms = listed(limit_of_output(r, all.back(), 0));
  ASSERT_GT(terms.size(), 2U);
  for (std::size_t i = 1; i < terms.size(); ++i) EXPECT_GE(terms[i - 1].second, terms[i].second);
  EXPECT_EQ(terms.front().first, "p_operand");
}

TEST(limits, are_never_nan) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const double x : {0.0, 1.0, 1e300, inf})
    for (const double u : {0.0, 0x1p-8, 0x1p-1, 1.0})
      for (const std::int64_t n : {1, 2048, 1 << 24}) {
        reference::attend_row row;
        row.n = n;
        row.m = x;
        row.lse = x;
        row.eta_bar = x;
        row.out = row.a = row.dev = row.q2 = row.e1 = row.e2 = row.x = {x};
        for (auto* zeroed : {&row.out, &row.a, &row.e1}) {
          auto other = row;
          const auto offset = zeroed == &row.out ? &reference::attend_row::out
                              : zeroed == &row.a ? &reference::attend_row::a
                                                 : &reference::attend_row::e1;
          (other.*offset)[0] = 0;
          roundoffs r;
          r.u_o = r.u_p = r.u_a = r.u_v = r.u_m_out = r.u_m_score = r.c_e = r.c_l = r.omega_o = r.omega_p = u;
          r.lse_from_rounded_p = true;
          EXPECT_FALSE(std::isnan(limit_of_output(r, other, 0).total));
          EXPECT_FALSE(std::isnan(limit_of_lse(r, other).total));
          EXPECT_FALSE(std::isnan(limit_of_code(r, other, 0, bf16).total));
          EXPECT_FALSE(std::isnan(limit_of_carry(r, other, 0, bf16).total));
          EXPECT_FALSE(std::isnan(expected_error(r, other, 0)));
        }
      }
}

TEST(limits, ratio) {
  EXPECT_EQ(ratio_to(0, 1, 1), 0);
  EXPECT_EQ(ratio_to(2, 2, 1), 0.5);
  EXPECT_TRUE(std::isinf(ratio_to(0, 1, 2)));
  EXPECT_TRUE(std::isinf(ratio_to(1, std::nan(""), 2)));
  EXPECT_TRUE(std::isinf(ratio_to(std::numeric_limits<double>::infinity(), INFINITY, 2)));
}

TEST(chains, gamma_is_infinite_where_it_says_nothing) {
  EXPECT_EQ(gamma(0, 0.1), 0);
  EXPECT_DOUBLE_EQ(gamma(100, 0x1p-24), 100 * 0x1p-24 / (1 - 100 * 0x1p-24));
  EXPECT_TRUE(std::isinf(gamma(128, 0x1p-8)));
  EXPECT_FALSE(std::isinf(gamma(127, 0x1p-8)));
}

}  // namespace
}  // namespace msabench::judge::test

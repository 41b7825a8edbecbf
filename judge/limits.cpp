// SPDX-License-Identifier: Apache-2.0
#include "judge/limits.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace msabench::judge {
namespace {

double fp32_steps(const reference::attend_row& row) { return std::abs(row.m) + std::abs(row.lse); }

double squared(double x) { return x * x; }

}  // namespace

std::vector<std::pair<std::string, double>> listed(const std::pair<std::string_view, double>* terms,
                                                   std::size_t count) {
  std::vector<std::pair<std::string, double>> list;
  for (std::size_t i = 0; i < count; ++i)
    if (terms[i].second > 0) list.emplace_back(terms[i].first, terms[i].second);
  std::ranges::stable_sort(list, [](const auto& a, const auto& b) { return a.second > b.second; });
  return list;
}

reference::score_error score_error_of(const roundoffs& r) {
  reference::score_error e;
  // An unbounded chain makes eta infinite whatever the scores; a large finite number does the same without inf * 0.
  e.per_magnitude = std::min(r.n_in * r.u_in + gamma(r.kappa_s, r.u_m_score), 1e100);
  e.per_score = r.u_s;
  e.constant = r.c_e;
  e.per_size = 4 * u32;
  e.var_score = squared(r.u_s) / 3;
  e.var_products = r.n_in * squared(r.u_in) / 3;
  e.var_constant = squared(r.c_e);
  e.var_size = squared(4 * u32);
  return e;
}

output_limit limit_of_output(const roundoffs& r, const reference::attend_row& row, std::size_t c) {
  const double o = std::abs(row.out[c]), a = row.a[c];
  return sum_of<9>({{
                       {"out_store", r.u_o * o},
                       {"p_operand", r.u_p * std::max(a, row.dev[c])},
                       {"partial_store", r.u_a * a},
                       {"v_operand", r.u_v * a},
                       {"pv_acc", gamma(r.kappa_o(row.n), r.u_m_out) * (a + o)},
                       {"scores", (1 + row.eta_bar) * row.e1[c]},
                       {"exp_log", (r.c_e + r.c_l + 2 * u32 * fp32_steps(row)) * o},
                       {"out_underflow", r.omega_o},
                       {"p_underflow", r.omega_p * std::exp(row.m - row.lse) * row.x[c]},
                   }},
                   second_order);
}

lse_limit limit_of_lse(const roundoffs& r, const reference::attend_row& row) {
  return limit_of_lse(r, lse_gauges{row.n, row.m, row.lse, row.eta_bar});
}

lse_limit limit_of_lse(const roundoffs& r, const lse_gauges& row) {
  const double rounded_p = r.u_p + static_cast<double>(row.n) * r.omega_p * std::exp(row.m - row.lse);
  return sum_of<5>({{
      {"scores", std::log1p(row.eta_bar)},
      {"row_sum", gamma(r.kappa_l(row.n), u32)},
      {"log", r.c_l},
      {"fp32", 4 * u32 * (std::abs(row.m) + std::abs(row.lse))},
      {"p_operand", r.lse_from_rounded_p ? rounded_p : 0},
  }});
}

code_limit limit_of_code(const roundoffs& r, const reference::attend_row& row, std::size_t c, dtype stored) {
  const double o = std::abs(row.out[c]);
  return sum_of<5>({{
      {"out_store", r.u_o * o},
      {"partial_store", r.u_a * o},
      {"exp_log", (r.c_e + r.c_l) * o},
      {"fp32", 2 * u32 * fp32_steps(row) * o},
      {"ulp", ulp_of(o, stored)},
  }});
}

carry_limit limit_of_carry(const roundoffs& r, const reference::attend_row& row, std::size_t c, dtype stored) {
  const double o = std::abs(row.out[c]);
  return sum_of<4>({{
      {"out_store", r.u_o * o},
      {"ulp", ulp_of(o, stored)},
      {"partial_store", r.u_a * row.a[c]},
      {"fp32", 8 * u32 * row.a[c]},
  }});
}

double expected_error(const roundoffs& r, const reference::attend_row& row, std::size_t c) {
  const double variance = squared(r.u_o * row.out[c]) / 3 +
                          (squared(r.u_p) + squared(r.u_a) + squared(r.u_v)) / 3 * row.q2[c] + row.e2[c] +
                          squared(8 * r.u_m_out * row.a[c]) + squared(r.omega_o);
  return std::sqrt(unless_nan(variance));
}

double ratio_to(double limit, double got, double want) {
  if (std::isnan(got)) return std::numeric_limits<double>::infinity();
  if (got == want) return 0;
  const double err = std::abs(got - want);
  return limit > 0 ? unless_nan(err / limit) : std::numeric_limits<double>::infinity();
}

}  // namespace msabench::judge

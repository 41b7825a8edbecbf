// SPDX-License-Identifier: Apache-2.0
// Limits of `attend` from declared roundoffs and the oracle's gauges; derivations in docs/verdicts.md. A limit keeps
// its terms apart, so that a report can say what it is made of. No limit is ever NaN: what can't be bounded is +inf.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "judge/declaration.h"
#include "reference/attend.h"

namespace msabench::judge {

// A sum of named terms.
template <std::size_t Count>
struct limit {
  std::array<std::pair<std::string_view, double>, Count> terms{};
  double total = 0;
};

// Second-order terms that the sum of first-order ones leaves out.
inline constexpr double second_order = 1.02;

inline double unless_nan(double x) { return std::isnan(x) ? std::numeric_limits<double>::infinity() : x; }

// The sum of the terms, each times `factor`.
template <std::size_t Count>
limit<Count> sum_of(const std::array<std::pair<std::string_view, double>, Count>& terms, double factor = 1) {
  limit<Count> l;
  for (std::size_t i = 0; i < Count; ++i) {
    l.terms[i] = {terms[i].first, unless_nan(factor * terms[i].second)};
    l.total += l.terms[i].second;
  }
  return l;
}

// The terms, largest first, without those that are 0.
std::vector<std::pair<std::string, double>> listed(const std::pair<std::string_view, double>* terms, std::size_t count);

template <std::size_t Count>
std::vector<std::pair<std::string, double>> listed(const limit<Count>& l) {
  return listed(l.terms.data(), Count);
}

// Rows whose scores are so uncertain that first-order terms do not bound the output.
inline constexpr double most_eta = 0.25;

reference::score_error score_error_of(const roundoffs& r);

using output_limit = limit<9>;
using lse_limit = limit<5>;
using code_limit = limit<5>;
using carry_limit = limit<4>;

// H_c of channel c (K1).
output_limit limit_of_output(const roundoffs& r, const reference::attend_row& row, std::size_t c);

// What the bound of a log-sum-exp is made of; as in reference::attend_row.
struct lse_gauges {
  std::int64_t n = 0;
  double m = 0, lse = 0, eta_bar = 0;
};

// K2.
lse_limit limit_of_lse(const roundoffs& r, const lse_gauges& row);
lse_limit limit_of_lse(const roundoffs& r, const reference::attend_row& row);

// K3: block code and key code, carry. `stored` is the type of the output.
code_limit limit_of_code(const roundoffs& r, const reference::attend_row& row, std::size_t c, dtype stored);
carry_limit limit_of_carry(const roundoffs& r, const reference::attend_row& row, std::size_t c, dtype stored);

// Expected size of the error in channel c: sigma_c.
double expected_error(const roundoffs& r, const reference::attend_row& row, std::size_t c);

// |got - want| / limit, 0 if they agree; +inf for NaN and for a difference where nothing is allowed.
double ratio_to(double limit, double got, double want);

}  // namespace msabench::judge

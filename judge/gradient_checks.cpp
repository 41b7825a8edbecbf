// SPDX-License-Identifier: Apache-2.0
#include "judge/gradient_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "judge/declaration.h"
#include "judge/element_check.h"

namespace msabench::judge {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

std::int64_t offset_of(const judged_gradient& g, std::int64_t row, std::int64_t head) {
  return g.got.desc.shape.size() == 3 ? g.got.offset(row, head) : g.got.offset(row);
}

// Calls visit(row, head, first element, values of the line).
template <class Visit>
void for_each_line(const judged_gradient& g, const Visit& visit) {
  std::vector<double> line(static_cast<std::size_t>(g.want.channels));
  for (std::int64_t row = 0; row < g.want.rows; ++row)
    for (std::int64_t head = 0; head < g.want.heads; ++head) {
      widen(g.got.data, g.got.desc.type, offset_of(g, row, head), g.want.channels, line.data());
      visit(row, head, g.want.element(row, head, 0), line);
    }
}

std::vector<std::int64_t> index_of(const judged_gradient& g, std::int64_t row, std::int64_t head) {
  return g.got.desc.shape.size() == 3 ? std::vector{row, head} : std::vector{row};
}

double square(double x) { return x * x; }

// Share of the expected square that sums have in it.
double share_of_sums(const reference::gradient& g, std::size_t element, const reference::sum_error& err) {
  return square(reference::fine_limit(g, element, err) / 16) / reference::expected_square(g, element, err);
}

// |alpha - 1| of a gradient that is not zero.
double scale_error(const judged_gradient& g) {
  double product = 0, norm = 0;
  for_each_line(g, [&](std::int64_t, std::int64_t, std::size_t first, const std::vector<double>& line) {
    for (std::size_t c = 0; c < line.size(); ++c) {
      product += line[c] * g.want.value[first + c];
      norm += square(g.want.value[first + c]);
    }
  });
  const double off = std::abs(product / norm - 1);
  return std::isnan(off) ? infinity : off;
}

}  // namespace

std::optional<double> limit_of_scale(const reference::gradient& g, const reference::sum_error& err,
                                     const scale_numbers& numbers) {
  double norm = 0, bound = 0, spread = 0;
  const auto channels = static_cast<std::size_t>(g.channels);
  for (std::size_t first = 0; first < g.value.size(); first += channels) {
    double line_norm = 0, line_spread = 0;
    for (std::size_t i = first; i < first + channels; ++i) {
      line_norm += square(g.value[i]);
      bound += std::abs(g.value[i]) * reference::limit_of(g, i, err).total();
      line_spread += reference::expected_square(g, i, err);
    }
    // An error of one weight moves all channels of a line along one vector, which may be that of the gradient itself.
    norm += line_norm;
    spread += line_norm * line_spread;
  }
  if (norm == 0) return std::nullopt;
  const double usual =
      2 * numbers.roundoff + 2 * numbers.exp_error + 4 * u32 * numbers.largest_lse + 6 * std::sqrt(spread) / norm;
  return std::min(unless_nan(bound / norm), unless_nan(usual));
}

gradient_element_limit limit_of_gradient(const reference::gradient& g, std::size_t element,
                                         const reference::sum_error& err) {
  const auto l = reference::limit_of(g, element, err);
  return sum_of<4>(
      {{{"grad_store", l.store}, {"operands", l.weights}, {"sums", l.additions}, {"underflow", l.underflow}}},
      second_order);
}

void scan_gradient(value_scan& scan, const judged_gradient& g) {
  for (std::int64_t row = 0; row < g.want.rows; ++row)
    for (std::int64_t head = 0; head < g.want.heads; ++head) {
      const value_scan::span line{g.where, &g.got, offset_of(g, row, head), g.want.channels, index_of(g, row, head)};
      g.want.chain[g.want.line(row, head)] == 0 ? scan.expect_exactly(line, 0) : scan.expect_finite(line);
    }
}

check_result check_gradient_elements(std::span<const judged_gradient> all, const reference::sum_error& err) {
  element_check check("K8a", "lines of the gradients");
  for (const judged_gradient& g : all)
    for_each_line(g, [&](std::int64_t row, std::int64_t head, std::size_t first, const std::vector<double>& line) {
      check.add(g.where, index_of(g, row, head), line, std::span(g.want.value).subspan(first, line.size()),
                [&](std::size_t c) { return limit_of_gradient(g.want, first + c, err); });
    });
  return check.result();
}

bool has_expected_size(const reference::gradient& g, const reference::sum_error& err) {
  std::vector<double> shares;
  for (std::size_t i = 0; i < g.value.size(); ++i)
    if (g.chain[i / static_cast<std::size_t>(g.channels)] > 0) shares.push_back(unless_nan(share_of_sums(g, i, err)));
  if (shares.empty()) return false;
  const auto middle = shares.begin() + std::ssize(shares) / 2;
  std::nth_element(shares.begin(), middle, shares.end());
  return *middle <= 0.5;
}

std::optional<check_result> check_gradient_sizes(std::span<const judged_gradient> all,
                                                 const reference::sum_error& err) {
  std::optional<check_result> worst;
  for (const judged_gradient& g : all) {
    if (!has_expected_size(g.want, err)) continue;
    double squares = 0;
    std::size_t elements = 0;
    for_each_line(g, [&](std::int64_t row, std::int64_t head, std::size_t first, const std::vector<double>& line) {
      if (g.want.chain[g.want.line(row, head)] == 0) return;
      for (std::size_t c = 0; c < line.size(); ++c)
        squares += square(line[c] - g.want.value[first + c]) / reference::expected_square(g.want, first + c, err);
      elements += line.size();
    });
    check_result c;
    c.id = "K8b";
    c.unit = "times the expected size";
    c.value = std::sqrt(squares / static_cast<double>(elements));
    c.limit = most_pooled_size;
    c.passed = c.value <= c.limit;
    c.note = fmt::format(
        "errors of {} are {:.3g} times as large as the declared roundings make them (over {} elements, "
        "at most {} is expected)",
        name(g.where), c.value, elements, c.limit);
    if (!c.passed) c.kind = std::isnan(c.value) ? fail_kind::nonfinite : fail_kind::numeric;
    if (!worst || !(c.value <= worst->value)) worst = std::move(c);
  }
  return worst;
}

std::optional<check_result> check_gradient_scales(std::span<const judged_gradient> all, const reference::sum_error& err,
                                                  const scale_numbers& numbers) {
  std::optional<check_result> worst;
  for (const judged_gradient& g : all) {
    const auto limit = limit_of_scale(g.want, err, numbers);
    if (!limit) continue;
    check_result c;
    c.id = "K8c";
    c.unit = "of 1";
    c.value = scale_error(g);
    c.limit = *limit;
    c.passed = c.value <= c.limit;
    c.note = fmt::format("{} is {:.3g} off as a whole, by its product with the right one, and at most {:.3g} is open",
                         name(g.where), c.value, c.limit);
    if (!c.passed) c.kind = std::isfinite(c.value) ? fail_kind::numeric : fail_kind::nonfinite;
    if (!worst || c.value * worst->limit > worst->value * c.limit) worst = std::move(c);
  }
  return worst;
}

}  // namespace msabench::judge

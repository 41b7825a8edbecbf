// SPDX-License-Identifier: Apache-2.0
// K4 and the reported part of K6 for attention: errors against their expected size, by row and by group of rows.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "judge/attend_expectation.h"
#include "judge/limits.h"
#include "judge/value_scan.h"

namespace msabench::judge {
namespace {

constexpr std::size_t rows_tried = 64;

void show(check_result& c, const attend_outputs& got, const error_sizes::member& m) {
  std::vector<double> out;
  got.out(m.row->row, m.row->head, out);
  c.worst = {slot::out,
             {m.row->row, m.row->head, static_cast<std::int64_t>(m.size.channel)},
             value_scan::axes_of(slot::out),
             out[m.size.channel],
             m.row->out[m.size.channel]};
}

// Some of many, evenly.
std::vector<const reference::attend_row*> sample_of(std::span<const error_sizes::member> rows) {
  std::vector<const reference::attend_row*> some;
  const std::size_t count = std::min(rows.size(), rows_tried);
  for (std::size_t i = 0; i < count; ++i) some.push_back(rows[i * rows.size() / count].row);
  return some;
}

fail_kind kind_of(const check_result& c) { return std::isfinite(c.value) ? fail_kind::numeric : fail_kind::nonfinite; }

}  // namespace

check_result attend_expectation::check_rows_size(const attend_outputs& got, const error_sizes& sizes) const {
  const auto& worst = sizes.worst();
  check_result c;
  c.id = "K4a";
  c.unit = "rms error of a row / expected size";
  c.value = worst.size.r;
  c.limit = most_row_size;
  c.passed = c.value <= c.limit;
  show(c, got, worst);
  if (c.passed) return c;
  c.kind = kind_of(c);
  c.note = "errors of whole rows are larger than the declared roundings make them";
  const reference::attend_row* failing[] = {worst.row};
  c.cure = find_cure(what_, in_, got, failing, c.id);
  return c;
}

check_result attend_expectation::check_groups_size(const attend_outputs& got,
                                                   const error_sizes::group_of_rows& worst) const {
  check_result c;
  c.id = "K4b";
  c.unit = "rms error of a group / expected size";
  c.value = worst.rms;
  c.limit = most_group_size;
  c.passed = c.value <= c.limit;
  c.note = fmt::format("{}, {} rows x heads", worst.name, worst.rows.size());
  show(c, got, *std::ranges::max_element(worst.rows, {}, [](const auto& m) { return m.size.r; }));
  if (c.passed) return c;
  c.kind = kind_of(c);
  c.cure = find_cure(what_, in_, got, sample_of(worst.rows), c.id);
  return c;
}

check_result attend_expectation::report_accuracy(const attend_outputs& got, const error_sizes::summary& rows) const {
  check_result c;
  c.id = "K6a";
  c.gate = false;
  c.unit = "rms error / expected size";
  c.value = rows.rms;
  c.limit = usual_group_size;
  const auto some = sample_of(rows.rows);
  const auto declared = score_error_of(r_);
  const std::string finer = find_finer_declaration(what_, rows, [&](const roundoffs& r) {
    std::vector<row_size> sizes;
    std::vector<double> out;
    const auto error = score_error_of(r);
    const bool same_scores = error.per_score == declared.per_score && error.per_magnitude == declared.per_magnitude;
    for (const auto* row : some) {
      got.out(row->row, row->head, out);
      const auto size =
          size_of_errors(r, same_scores ? *row : reference::attend_head(in_, row->row, row->head, error), out);
      if (size) sizes.push_back(*size);
    }
    return sizes;
  });
  c.passed = finer.empty() && c.value <= c.limit;
  c.note = finer;
  return c;
}

// Weights rounded by up to u_p each move lse by about u_p / sqrt(3) times the root of the sum of their squares, without the
// heaviest, which is 1 exactly before it is divided. Where that is three times what exact weights may be off by, a row
// of rounded ones stays below in at most four of ten cases, and sixteen rows never do.
std::optional<check_result> attend_expectation::report_sum_of_weights(const attend_outputs& got) const {
  constexpr double least_size = 3;
  constexpr std::int64_t least_rows = 16;
  if (!r_.lse_from_rounded_p || !got.has_lse()) return std::nullopt;
  roundoffs exact = r_;
  exact.lse_from_rounded_p = false;
  check_result c;
  c.id = "K6l";
  c.gate = false;
  c.unit = "error of lse / limit of exact weights";
  c.limit = 1;
  std::int64_t rows = 0;
  for (const auto& want : want_) {
    if (want.n == 0) continue;
    const double heaviest = std::exp(want.m - want.lse), limit = limit_of_lse(exact, want).total;
    const double others = 1 / want.n_eff - heaviest * heaviest;
    if (!(others > 0 && r_.u_p * std::sqrt(others / 3) >= least_size * limit)) continue;
    ++rows;
    c.value = std::max(c.value, ratio_to(limit, got.lse(want.row, want.head), want.lse));
  }
  if (rows < least_rows) return std::nullopt;
  c.passed = c.value > c.limit;
  if (!c.passed)
    c.note = fmt::format(
        "lse_from_rounded_p 1 is declared, and lse is that of exact weights in all {} rows x heads that tell", rows);
  return c;
}

// An honest kernel's errors are sums of many roundings, which come nowhere near their worst case; one that uses more than
// half of it rounds otherwise than it says.
std::optional<check_result> attend_expectation::report_use(const attend_outputs& got) const {
  constexpr double least_keys = 64, healthy = 0.5;
  check_result c;
  c.id = "K6u";
  c.gate = false;
  c.unit = "of what K1 allows beyond the output's rounding";
  c.limit = healthy;
  bool any = false;
  std::vector<double> out;
  for (const auto& want : want_) {
    if (want.n == 0 || want.n_eff < least_keys || !gauge_.judges_k1(want)) continue;
    got.out(want.row, want.head, out);
    for (std::size_t channel = 0; channel < out.size(); ++channel) {
      const double stored = r_.u_o * std::abs(want.out[channel]);
      const double allowed = gauge_.k1_limit(want, channel) - stored;
      if (!(allowed > 0) || !std::isfinite(allowed)) continue;
      any = true;
      const double use = std::max(0.0, std::abs(out[channel] - want.out[channel]) - stored) / allowed;
      if (!(use > c.value)) continue;
      c.value = use;
      c.worst = {slot::out,
                 {want.row, want.head, static_cast<std::int64_t>(channel)},
                 value_scan::axes_of(slot::out),
                 out[channel],
                 want.out[channel]};
    }
  }
  if (!any) return std::nullopt;
  c.passed = c.value <= c.limit;
  return c;
}

void attend_expectation::check_sizes(const attend_outputs& got, std::vector<check_result>& into) const {
  if (auto use = report_use(got)) into.push_back(std::move(*use));
  if (auto sums = report_sum_of_weights(got)) into.push_back(std::move(*sums));
  error_sizes sizes(std::max(1, what_.agreed.group()));
  std::vector<double> out;
  for (const auto& want : want_) {
    if (want.n == 0) continue;
    got.out(want.row, want.head, out);
    if (const auto size = size_of_errors(r_, want, out)) sizes.add(want, *size);
  }
  if (sizes.empty()) return;
  if (gauge_.judges_k4()) {
    into.push_back(check_rows_size(got, sizes));
    if (const auto worst = sizes.worst_group(); !worst.rows.empty()) into.push_back(check_groups_size(got, worst));
  }
  if (const auto rows = sizes.all_rows()) {
    into.push_back(report_accuracy(got, *rows));
    into.push_back(check_bias(*rows));
  }
}

}  // namespace msabench::judge

// SPDX-License-Identifier: Apache-2.0
#include "judge/error_size.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "judge/limits.h"

namespace msabench::judge {
namespace {

constexpr std::int64_t row_classes = 8;

double rms_of(std::span<const error_sizes::member> rows) {
  double sum = 0;
  for (const auto& m : rows) sum += m.size.r * m.size.r;
  return rows.empty() ? 0 : std::sqrt(sum / static_cast<double>(rows.size()));
}

// A part of the declared size that finer numbers take away has to be worth telling.
constexpr double worth_telling = 0.8;

struct finer {
  numerics declared;
  std::string text;
};

// Declarations that are finer in one field.
std::vector<finer> finer_declarations(const problem& p, const numerics& n) {
  std::vector<finer> all;
  const auto store = [&](std::string_view field, dtype numerics::* type, dtype best, std::uint32_t truncation) {
    if (truncation != 0 && (n.truncated & truncation) != 0) {
      numerics rounded = n;
      rounded.truncated &= ~truncation;
      all.push_back({rounded, fmt::format("{} {} truncated", field, name(n.*type))});
    }
    if (n.*type == best) return;
    numerics exact = n;
    exact.*type = best;
    exact.truncated &= ~truncation;
    all.push_back({exact, fmt::format("{} {}", field, name(n.*type))});
  };
  store("p_operand", &numerics::p_operand, fp32, truncates_p);
  store("partial_store", &numerics::partial_store, fp32, truncates_partial);
  store("score_store", &numerics::score_store, fp32, truncates_score);
  store("v_operand", &numerics::v_operand, p.kv, truncates_v);
  // The output has the type that it has: only how it is rounded can be finer.
  store("out_store", &numerics::out_store, p.out, truncates_out);
  if (n.rounded_operands > 0 && (n.truncated & truncates_operand) != 0) {
    numerics rounded = n;
    rounded.truncated &= ~static_cast<std::uint32_t>(truncates_operand);
    all.push_back({rounded, fmt::format("operand {} truncated", name(n.operand))});
  }
  if (n.rounded_operands > 0) {
    numerics exact = n;
    exact.operand = p.q;
    exact.rounded_operands = 0;
    exact.truncated &= ~static_cast<std::uint32_t>(truncates_operand);
    all.push_back({exact, fmt::format("operand {} with rounded_operands {}", name(n.operand), n.rounded_operands)});
  }
  return all;
}

}  // namespace

bool has_independent_values(const case_spec& c) { return c.family == "random" || c.family == "planted"; }

bool judges_error_size(const problem& p, const numerics& n) {
  const roundoffs r = resolve(p, n);
  const double single = 2 * u32;  // also where it truncates
  return r.u_o > single || (r.u_p > single && n.p_operand != tf32);
}

std::optional<row_size> size_of_errors(const roundoffs& r, const reference::attend_row& row,
                                       std::span<const double> out) {
  if (row.n == 0 || row.eta_bar > most_eta) return std::nullopt;
  row_size size;
  double squares = 0, signed_errors = 0, largest = -1;
  std::vector<double> shares;  // of sums in single precision
  for (std::size_t c = 0; c < out.size(); ++c) {
    const double sigma = expected_error(r, row, c);
    if (!(sigma > 0) || !std::isfinite(sigma)) continue;
    const double err = (out[c] - row.out[c]) / sigma;
    const double square = std::isnan(err) ? std::numeric_limits<double>::infinity() : err * err;
    squares += square;
    signed_errors += row.out[c] < 0 ? -err : err;
    size.expected_square += sigma * sigma;
    if (square > largest) {
      largest = square;
      size.channel = c;
    }
    const double sums = 8 * r.u_m_out * row.a[c] / sigma;
    shares.push_back(sums * sums);
  }
  if (shares.size() < std::max<std::size_t>(8, out.size() / 4)) return std::nullopt;
  const auto middle = shares.begin() + static_cast<std::ptrdiff_t>(shares.size() / 2);
  std::nth_element(shares.begin(), middle, shares.end());
  if (*middle > 0.5) return std::nullopt;
  const auto channels = static_cast<double>(shares.size());
  size.r = std::sqrt(squares / channels);
  size.bias = signed_errors / channels;
  size.expected_square /= channels;
  return size;
}

void error_sizes::add(const reference::attend_row& row, const row_size& size) { rows_.push_back({&row, size}); }

const error_sizes::member& error_sizes::worst() const {
  return *std::ranges::max_element(rows_, {}, [](const member& m) { return m.size.r; });
}

error_sizes::group_of_rows error_sizes::worst_group() const {
  std::map<std::string, std::vector<member>> groups;
  for (const auto& m : rows_) {
    if (m.row->n_eff < least_n_eff) continue;
    groups[fmt::format("KV head {}", m.row->head / group_)].push_back(m);
    groups[fmt::format("rows {} mod {}", m.row->row % row_classes, row_classes)].push_back(m);
  }
  group_of_rows worst;
  for (auto& [group, rows] : groups) {
    if (rows.size() < least_group_rows) continue;
    const double rms = rms_of(rows);
    if (worst.rows.empty() || rms > worst.rms) worst = {group, rms, std::move(rows)};
  }
  return worst;
}

std::optional<error_sizes::summary> error_sizes::all_rows() const {
  summary s;
  for (const auto& m : rows_)
    if (m.row->n_eff >= least_n_eff) s.rows.push_back(m);
  if (s.rows.size() < least_group_rows) return std::nullopt;
  s.rms = rms_of(s.rows);
  const auto count = static_cast<double>(s.rows.size());
  for (const auto& m : s.rows) s.bias += m.size.bias / count;
  double squares = 0;
  for (const auto& m : s.rows) squares += (m.size.bias - s.bias) * (m.size.bias - s.bias);
  s.bias_error = std::sqrt(squares / (count - 1) / count);
  return s;
}

check_result check_bias(const error_sizes::summary& rows) {
  check_result c;
  c.id = "K6b";
  c.gate = false;
  c.unit = "mean error toward larger outputs / expected size";
  c.value = std::abs(rows.bias);
  c.limit = 0.1 + 4 * rows.bias_error;
  c.passed = c.value <= c.limit;
  c.note = fmt::format("errors are {:.2g} of their expected size on average {} 0 ({} rows x heads)",
                       std::abs(rows.bias), rows.bias < 0 ? "toward" : "away from", rows.rows.size());
  return c;
}

std::string find_finer_declaration(const subject& what, const error_sizes::summary& rows,
                                   const std::function<std::vector<row_size>(const roundoffs&)>& sizes_under) {
  if (!(rows.rms <= usual_group_size)) return {};
  const auto mean_square = [](const std::vector<row_size>& sizes, auto&& square) {
    double sum = 0;
    for (const auto& s : sizes) sum += square(s);
    return sum / static_cast<double>(sizes.size());
  };
  const auto expected = [](const row_size& s) { return s.expected_square; };
  const auto error = [](const row_size& s) { return s.r * s.r; };
  const auto now = sizes_under(resolve(what.agreed, what.declared));
  if (now.empty()) return {};
  for (const auto& candidate : finer_declarations(what.agreed, what.declared)) {
    const auto sizes = sizes_under(resolve(what.agreed, candidate.declared));
    if (sizes.size() != now.size()) continue;
    if (mean_square(sizes, expected) > worth_telling * mean_square(now, expected)) continue;
    const double rms = std::sqrt(mean_square(sizes, error));
    if (rms <= usual_group_size)
      return fmt::format(
          "{} is declared, and errors are those of a finer one ({:.2g} of the size that it leads one to "
          "expect)",
          candidate.text, std::sqrt(mean_square(now, error)));
  }
  return {};
}

}  // namespace msabench::judge

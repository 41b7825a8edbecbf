// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "judge/attend_expectation.h"
#include "judge/attend_naming.h"
#include "judge/limits.h"
#include "judge/value_scan.h"

namespace msabench::judge {
namespace {

// A row and head that exceeds its limit, by its worst element.
struct failing_row {
  double ratio = 0;
  const reference::attend_row* want = nullptr;
  std::size_t channel = 0;
};

// The worst element of everything seen and, of the rows that fail, the worst few.
class worst_rows {
 public:
  void add(double ratio, const reference::attend_row& want, std::size_t channel) {
    if (!worst_.want || ratio > worst_.ratio) worst_ = {ratio, &want, channel};
    if (ratio <= 1) return;
    failing_.push_back({ratio, &want, channel});
  }
  // By the channel that is worst against its limit.
  template <class Limit>
  void add(const reference::attend_row& want, const std::vector<double>& out, const Limit& limit_of_channel) {
    double worst = -1;
    std::size_t channel = 0;
    for (std::size_t c = 0; c < out.size(); ++c)
      if (const double r = ratio_to(limit_of_channel(c), out[c], want.out[c]); r > worst) {
        worst = r;
        channel = c;
      }
    add(worst, want, channel);
  }
  const failing_row& worst() const { return worst_; }
  bool fails() const { return !failing_.empty(); }
  std::size_t failing_count() const { return failing_.size(); }

  std::vector<failing_row> worst_failing(std::size_t most) const {
    auto rows = failing_;
    const auto count = std::min(most, rows.size());
    std::partial_sort(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(count), rows.end(),
                      [](const auto& a, const auto& b) { return a.ratio > b.ratio; });
    rows.resize(count);
    return rows;
  }

 private:
  failing_row worst_;
  std::vector<failing_row> failing_;
};

std::vector<const reference::attend_row*> rows_of(const std::vector<failing_row>& failing) {
  std::vector<const reference::attend_row*> rows;
  rows.reserve(failing.size());
  for (const auto& f : failing) rows.push_back(f.want);
  return rows;
}

void show(check_result& c, const attend_outputs& got, const failing_row& row) {
  std::vector<double> out;
  got.out(row.want->row, row.want->head, out);
  c.worst = {slot::out,
             {row.want->row, row.want->head, static_cast<std::int64_t>(row.channel)},
             value_scan::axes_of(slot::out),
             out[row.channel],
             row.want->out[row.channel]};
  c.value = std::abs(c.worst.got - c.worst.want);
}

fail_kind kind_of(const check_result& c) {
  return std::isfinite(c.worst.got) ? fail_kind::numeric : fail_kind::nonfinite;
}

void add_note(check_result& c, const std::string& clause) {
  if (!c.note.empty()) c.note += "; ";
  c.note += clause;
}

// Relative error of sums from which on single blocks of a long row drown in it: that of a 16-bit operand.
constexpr double wide_chain = 0x1p-8;

// A declaration that would not do is mostly refused by the worst row; one that would has to do for many.
constexpr std::size_t rows_tried_for_cure = 32, rows_tried_for_name = 8;

}  // namespace

attend_expectation::attend_expectation(const subject& what, std::span<const std::int64_t> rows)
    : what_(what),
      in_(attend_inputs_of(what)),
      map_(in_.cu_seqlens_q, in_.kv_lens),
      r_(resolve(what.agreed, what.declared)),
      gauge_(what_, r_),
      rows_(rows.begin(), rows.end()),
      want_(reference::attend(in_, rows, score_error_of(r_))) {}

bool attend_expectation::selects_nothing(std::int64_t row, std::int64_t kv_head) const {
  const std::int64_t visible = map_.visible_blocks(row, what_.agreed.block);
  if (in_.ids.desc.shape.empty()) return visible == 0;
  for (std::int64_t i = 0; i < in_.ids.desc.shape[2] && visible > 0; ++i) {
    const auto id = in_.ids.int_at(row, kv_head, i);
    if (id >= 0 && id < visible) return false;
  }
  return true;
}

check_result attend_expectation::check_structure(const attend_outputs& got, int launch_index,
                                                 std::uint64_t poison_seed) const {
  value_scan scan(launch_index, poison_seed);
  const std::int64_t group = std::max(1, what_.agreed.group());
  const bool any_empty_value = what_.delivers.empty_row == empty_form::undefined;
  for (std::int64_t row = 0; row < map_.total_rows(); ++row)
    for (std::int64_t head = 0; head < what_.agreed.hq; ++head) {
      const bool empty = selects_nothing(row, head / group);
      if (empty && any_empty_value) continue;
      const auto& out = got.out_view();
      const value_scan::span channels{slot::out, &out, out.offset(row, head), out.desc.shape[2], {row, head}};
      empty ? scan.expect_exactly(channels, 0) : scan.expect_finite(channels);
      if (!got.has_lse()) continue;
      const auto& lse = got.lse_view();
      const value_scan::span sum{slot::lse, &lse, lse.offset(row, head), 1, {row, head}};
      empty ? scan.expect_exactly(sum, -std::numeric_limits<double>::infinity()) : scan.expect_finite(sum);
    }
  return scan.result();
}

check_result attend_expectation::check_output(const attend_outputs& got) const {
  check_result c;
  c.id = "K1";
  c.unit = "abs";
  worst_rows rows;
  std::int64_t left_out = 0, judged = 0, longest = 0;
  std::vector<double> out;
  for (const auto& want : want_) {
    if (want.n == 0) continue;
    if (!gauge_.judges_k1(want)) {
      ++left_out;
      continue;
    }
    ++judged;
    longest = std::max(longest, want.n);
    got.out(want.row, want.head, out);
    rows.add(want, out, [&](std::size_t i) { return gauge_.k1_limit(want, i); });
  }
  if (left_out > 0)
    add_note(c, fmt::format("{} of {} rows x heads left out: their scores are too uncertain (mean eta above {})",
                            left_out, left_out + judged, most_eta));
  if (const double chain = gamma(r_.kappa_o(longest), r_.u_m_out); chain > wide_chain)
    add_note(c,
             fmt::format("sums of up to {} keys: the declared chain_out leaves errors of {:.2g} of the values open, so "
                         "keys and blocks of long rows are seen by the codes only",
                         longest, chain));
  c.observed = judged > 0 || left_out == 0;
  c.passed = c.observed && !rows.fails();
  if (const auto& w = rows.worst(); w.want) {
    const auto limit = limit_of_output(r_, *w.want, w.channel);
    show(c, got, w);
    c.limit = limit.total;
    c.terms = listed(limit);
  }
  if (rows.fails()) {
    c.kind = kind_of(c);
    c.cure = find_cure(what_, in_, got, rows_of(rows.worst_failing(rows_tried_for_cure)), c.id);
    add_note(c, fmt::format("{} of {} rows x heads exceed the limit", rows.failing_count(), judged));
  }
  return c;
}

check_result attend_expectation::check_lse(const attend_outputs& got) const {
  check_result c;
  c.id = "K2";
  c.unit = "abs";
  if (!got.has_lse()) {
    c.observed = false;
    c.note = "no lse: single keys are seen by block_code and key_code only";
    return c;
  }
  worst_rows rows;
  std::int64_t judged = 0;
  for (const auto& want : want_) {
    if (want.n == 0) continue;
    ++judged;
    rows.add(ratio_to(gauge_.k2_limit(want), got.lse(want.row, want.head), want.lse), want, 0);
  }
  c.passed = !rows.fails();
  if (r_.lse_from_rounded_p) add_note(c, "summed from rounded P: single keys are not seen");
  if (const auto& w = rows.worst(); w.want) {
    const auto limit = limit_of_lse(r_, *w.want);
    c.worst = {slot::lse,
               {w.want->row, w.want->head},
               value_scan::axes_of(slot::lse),
               got.lse(w.want->row, w.want->head),
               w.want->lse};
    c.value = std::abs(c.worst.got - c.worst.want);
    c.limit = limit.total;
    c.terms = listed(limit);
  }
  if (rows.fails()) {
    c.kind = kind_of(c);
    c.cure = find_cure(what_, in_, got, rows_of(rows.worst_failing(rows_tried_for_cure)), c.id);
    add_note(c, fmt::format("{} of {} rows x heads exceed the limit", rows.failing_count(), judged));
  }
  return c;
}

check_result attend_expectation::check_probe(const attend_outputs& got) const {
  check_result c;
  c.id = "K3";
  c.unit = "abs";
  if (!gauge_.judges_k3()) {
    c.observed = false;
    c.note = "the declared accumulator (pv_acc) is coarser than 2^-23, which this probe can't tell from a fault";
    return c;
  }
  worst_rows rows;
  std::vector<double> out;
  for (const auto& want : want_) {
    if (want.n == 0) continue;
    got.out(want.row, want.head, out);
    rows.add(want, out, [&](std::size_t i) { return gauge_.k3_limit(want, i); });
  }
  c.passed = !rows.fails();
  failing_row shown = rows.worst();
  if (rows.fails()) {
    const auto failing = rows.worst_failing(rows_tried_for_name);
    std::vector<double> limits;
    for (std::size_t i = 0; i < failing.size() && c.named.empty() && probe_of(what_.definition) == probe::code; ++i) {
      const auto& want = *failing[i].want;
      got.out(want.row, want.head, out);
      limits.clear();
      for (std::size_t ch = 0; ch < out.size(); ++ch) limits.push_back(gauge_.k3_limit(want, ch));
      c.named = name_code_fault(in_, map_[want.row], want, out, limits);
      if (!c.named.empty()) shown = failing[i];
    }
    c.cure = find_cure(what_, in_, got, rows_of(rows.worst_failing(rows_tried_for_cure)), c.id);
    add_note(c, fmt::format("{} rows x heads exceed the limit", rows.failing_count()));
  }
  if (shown.want) {
    show(c, got, shown);
    c.limit = gauge_.k3_limit(*shown.want, shown.channel);
    c.terms = gauge_.k3_terms(*shown.want, shown.channel);
  }
  if (rows.fails()) c.kind = kind_of(c);
  return c;
}

std::vector<check_result> attend_expectation::check(const launch& outputs, int launch_index,
                                                    std::uint64_t poison_seed) const {
  const attend_outputs got(what_, outputs);
  if (!got.has_out())
    throw suite_error(fmt::format("the launch of a case of {} has no tensor out", name(what_.agreed.operation)));
  std::vector<check_result> checks{check_structure(got, launch_index, poison_seed), check_output(got), check_lse(got)};
  if (probe_of(what_.definition) != probe::none) checks.push_back(check_probe(got));
  if (has_independent_values(what_.definition)) check_sizes(got, checks);
  return checks;
}

}  // namespace msabench::judge

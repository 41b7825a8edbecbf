// SPDX-License-Identifier: Apache-2.0
#include "perf/whole_estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "core/operator.h"
#include "perf/clocks.h"

namespace msabench {
namespace {

constexpr std::size_t fewest_chunks = 3;

// Times of one item, or of the fastest of several, at the chunks that have one.
struct series {
  std::vector<const perf_item*> items;  // by position; null: without a time
  chunk_times alone, in_a_row;
  std::set<int> implementations;

  explicit series(std::size_t chunks) : items(chunks, nullptr) {}
  bool has_ends(const chunk_times& t) const {
    return t.at.size() >= fewest_chunks && t.at.front() == 0 && t.at.back() + 1 == items.size();
  }
  // Where all that have a time have one of this kind too.
  bool has_in_a_row() const { return has_ends(in_a_row) && in_a_row.at.size() == alone.at.size(); }
};

bool is_of(const perf_point& p, const whole_chunk& c) {
  return p.context == c.context && p.query_tokens == c.query_tokens;
}

// `implementation` nothing: the fastest one at each chunk.
series series_of(const perf_run& run, std::span<const whole_chunk> chunks, std::string_view operation,
                 std::optional<int> implementation) {
  series made(chunks.size());
  for (std::size_t at = 0; at < chunks.size(); ++at) {
    std::optional<double> in_a_row;
    const perf_item*& best = made.items[at];
    for (const perf_point& p : run.points)
      for (const perf_item& i : p.items) {
        if (!is_of(p, chunks[at]) || i.operation != operation || !i.figures) continue;
        if (implementation && i.implementation != *implementation) continue;
        if (!best || i.time_us.median < best->time_us.median) best = &i;
        if (const auto us = i.in_a_row.time_us(); us && (!in_a_row || *us < *in_a_row)) in_a_row = us;
      }
    if (!best) continue;
    made.implementations.insert(best->implementation);
    made.alone.at.push_back(at);
    made.alone.us.push_back(best->time_us.median);
    if (!in_a_row) continue;
    made.in_a_row.at.push_back(at);
    made.in_a_row.us.push_back(*in_a_row);
  }
  return made;
}

bool at_one_clock(const series& a, const series& b) {
  for (std::size_t at = 0; at < a.items.size(); ++at)
    if (a.items[at] && b.items[at] && !clocks_apart(a.items[at]->timing, b.items[at]->timing).empty()) return false;
  return true;
}

}  // namespace

double sum_by_lines(std::span<const whole_chunk> chunks, const chunk_times& measured) {
  const auto x = [&](std::size_t at) { return static_cast<double>(chunks[at].context); };
  const auto tokens = [&](std::size_t at) { return static_cast<double>(chunks[at].query_tokens); };
  const auto us_per_token = [&](std::size_t i) { return measured.us[i] / tokens(measured.at[i]); };
  double sum = measured.us.front();
  for (std::size_t i = 1; i < measured.at.size(); ++i) {
    const std::size_t from = measured.at[i - 1], to = measured.at[i];
    for (std::size_t at = from + 1; at < to; ++at) {
      const double share = (x(at) - x(from)) / (x(to) - x(from));
      sum += tokens(at) * ((1 - share) * us_per_token(i - 1) + share * us_per_token(i));
    }
    sum += measured.us[i];
  }
  return sum;
}

double largest_deviation(std::span<const whole_chunk> chunks, const chunk_times& measured) {
  double largest = 0;
  for (std::size_t i = 1; i + 1 < measured.at.size(); ++i) {
    const auto x = [&](std::size_t j) { return static_cast<double>(chunks[measured.at[j]].context); };
    const auto y = [&](std::size_t j) {
      return measured.us[j] / static_cast<double>(chunks[measured.at[j]].query_tokens);
    };
    const double share = (x(i) - x(i - 1)) / (x(i + 1) - x(i - 1));
    const double line = (1 - share) * y(i - 1) + share * y(i + 1);
    largest = std::max(largest, std::abs(line - y(i)) / y(i));
  }
  return largest;
}

void estimate_wholes(const perf_run& run, std::span<const whole_chunk> chunks, std::span<perf_whole> wholes,
                     std::span<const std::string> labels) {
  if (std::ranges::none_of(wholes, &perf_whole::partial)) return;
  const series dense = series_of(run, chunks, name(op::dense), std::nullopt);
  for (perf_whole& w : wholes) {
    const series own = series_of(run, chunks, w.operation, w.implementation);
    if (!own.has_ends(own.alone)) continue;
    perf_whole_estimate e;
    for (const std::size_t at : own.alone.at) e.contexts.push_back(chunks[at].context);
    e.time_us = sum_by_lines(chunks, own.alone);
    if (own.has_in_a_row()) e.back_to_back_us = sum_by_lines(chunks, own.in_a_row);
    e.deviation = largest_deviation(chunks, own.has_in_a_row() ? own.in_a_row : own.alone);
    if (dense.has_ends(dense.alone)) {
      std::vector<std::string> whose;
      for (const int i : dense.implementations) whose.push_back(labels[static_cast<std::size_t>(i)]);
      e.dense = fmt::format("{}", fmt::join(whose, ", "));
      e.dense_chunks = std::ssize(dense.alone.at);
      e.dense_us = sum_by_lines(chunks, dense.alone);
      if (dense.has_in_a_row()) e.dense_back_to_back_us = sum_by_lines(chunks, dense.in_a_row);
      if (at_one_clock(own, dense)) e.gain_over_dense = *e.dense_us / e.time_us;
      if (e.back_to_back_us && e.dense_back_to_back_us)
        e.back_to_back_gain = *e.dense_back_to_back_us / *e.back_to_back_us;
    }
    w.estimate = std::move(e);
  }
}

}  // namespace msabench

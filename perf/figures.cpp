// SPDX-License-Identifier: Apache-2.0
#include "perf/figures.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/operator.h"
#include "perf/clocks.h"

namespace msabench {
namespace {

bool has_number(const perf_item& i) { return i.figures && i.time_us.median > 0; }

const perf_item* find(const perf_point& p, std::string_view operation, int implementation) {
  for (const auto& i : p.items)
    if (i.operation == operation && i.implementation == implementation && has_number(i)) return &i;
  return nullptr;
}

// Stages of msa, and msa itself, are what dense attention is the alternative to; a prologue or a merge is not.
bool replaces_dense(std::string_view operation) {
  return operation == name(op::msa) || operation == name(op::attend) || operation == name(op::dense);
}

bool is_stage(std::string_view operation) { return operation != name(op::msa) && operation != name(op::dense); }

}  // namespace

operand_types operands_of(const problem& p, dtype type) {
  return {p.q_idx == e4m3 && p.k_idx == e4m3 ? e4m3 : type, type};
}

std::optional<roofline> roofline_of(const perf_work& w, const perf_ceilings& c, operand_types operands) {
  if (!c.known()) return std::nullopt;
  double by_flops = 0;
  const auto add = [&](double flops, dtype type) {
    const auto peak = c.flops.find(std::string(name(type)));
    if (peak == c.flops.end()) return false;
    by_flops += flops / peak->second;
    return true;
  };
  const double rest = w.useful_flops - w.index_flops;
  if (w.index_flops > 0 && !add(w.index_flops, operands.index)) return std::nullopt;
  if ((rest > 0 || w.index_flops == 0) && !add(rest, operands.rest)) return std::nullopt;
  const double by_bytes = w.compulsory_bytes / c.bytes_per_s;
  return roofline{std::max(by_flops, by_bytes), by_flops >= by_bytes};
}

perf_figures figures_of(const perf_work& w, const perf_ceilings& c, operand_types operands, double seconds) {
  perf_figures f;
  f.flops_per_s = w.useful_flops / seconds;
  f.bytes_per_s = w.compulsory_bytes / seconds;
  if (const auto limit = roofline_of(w, c, operands)) {
    f.roofline_s = limit->seconds;
    f.bound = limit->by_flops ? "flops" : "bytes";
    if (limit->seconds / seconds <= highest_efficiency) f.efficiency = limit->seconds / seconds;
  }
  return f;
}

void compare_items(perf_point& point, std::span<const std::string> labels) {
  const perf_item *dense = nullptr, *dense_in_a_row = nullptr;
  for (const auto& i : point.items) {
    if (i.operation != name(op::dense) || !has_number(i)) continue;
    if (!dense || i.time_us.median < dense->time_us.median) dense = &i;
    if (i.in_a_row.time_us() && (!dense_in_a_row || i.in_a_row.time_us() < dense_in_a_row->in_a_row.time_us()))
      dense_in_a_row = &i;
  }
  for (auto& i : point.items) {
    if (!has_number(i)) continue;
    perf_figures& f = *i.figures;
    const auto own_in_a_row = i.in_a_row.time_us();
    if (dense && replaces_dense(i.operation)) {
      f.gain_refused = clocks_apart(i.timing, dense->timing);
      if (f.gain_refused.empty()) f.gain_over_dense = dense->time_us.median / i.time_us.median;
      f.dense = labels[static_cast<std::size_t>(dense->implementation)];
      f.gain_verified = i.state == item_state::measured && dense->state == item_state::measured;
      if (f.roofline_s > 0 && dense->figures->roofline_s > 0) f.gain_limit = dense->figures->roofline_s / f.roofline_s;
      if (own_in_a_row && dense_in_a_row) f.back_to_back_gain = *dense_in_a_row->in_a_row.time_us() / *own_in_a_row;
    }
    if (const perf_item* msa = find(point, name(op::msa), i.implementation); msa && is_stage(i.operation))
      f.share_of_msa = i.time_us.median / msa->time_us.median;
    if (const perf_item* other = find(point, i.operation, 1 - i.implementation)) {
      f.against_refused = clocks_apart(i.timing, other->timing);
      if (f.against_refused.empty()) f.against = other->time_us.median / i.time_us.median;
      if (own_in_a_row && other->in_a_row.time_us())
        f.back_to_back_against = *other->in_a_row.time_us() / *own_in_a_row;
    }
  }
}

measured_crossover crossover_of(std::span<const context_ratio> ascending) {
  // The last change from slower to not slower counts: before it msa still loses somewhere.
  std::size_t first = ascending.size();
  while (first > 0 && ascending[first - 1].msa_over_dense <= 1) --first;
  if (first == ascending.size()) return {};
  if (first == 0) return {static_cast<double>(ascending[0].context), true};
  const context_ratio &slow = ascending[first - 1], &fast = ascending[first];
  const double from = std::log(slow.msa_over_dense), to = std::log(fast.msa_over_dense);
  const double x = from / (from - to);
  return {
      std::exp(std::lerp(std::log(static_cast<double>(slow.context)), std::log(static_cast<double>(fast.context)), x)),
      false};
}

void find_crossovers(perf_run& run, int implementations) {
  for (int i = 0; i < implementations; ++i) {
    std::vector<context_ratio> ratios;
    for (const auto& p : run.points)
      for (const auto& item : p.items)
        if (item.implementation == i && item.operation == name(op::msa) && item.figures &&
            item.figures->gain_over_dense)
          ratios.push_back({p.context, 1 / *item.figures->gain_over_dense});
    const measured_crossover at = crossover_of(ratios);
    std::string note = at.at_most       ? "at the shortest context already"
                       : ratios.empty() ? "msa and dense were not both measured"
                       : at.context     ? ""
                                        : "not up to the longest context";
    run.crossovers.push_back({i, at.context, std::move(note)});
  }
}

}  // namespace msabench

// SPDX-License-Identifier: Apache-2.0
#include "judge/select_row_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "judge/detectability.h"
#include "reference/select.h"

namespace msabench::judge {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

double rank_of(double score) { return std::isnan(score) ? -infinity : score; }

selection_fault structural(std::string text, std::int64_t chosen, std::int64_t left_out) {
  selection_fault f;
  f.what = selection_fault::kind::structure;
  f.text = std::move(text);
  f.chosen = chosen;
  f.left_out = left_out;
  return f;
}

// Ascending is the contract's own order; any other one was declared, so the blocks are right all the same.
selection_fault misplaced(std::string text, std::int64_t chosen) {
  selection_fault f = structural(std::move(text), chosen, -1);
  f.what = selection_fault::kind::order;
  return f;
}

std::span<const std::int32_t> chosen_part(std::span<const std::int32_t> ids) {
  return ids.first(static_cast<std::size_t>(std::ranges::find(ids, -1) - ids.begin()));
}

bool is_forced(std::int64_t b, std::int64_t visible, const selection_rules& r) {
  return reference::forced(b, visible - 1, r.local_blocks, r.init_blocks);
}

selection_fault check_order(std::span<const std::int32_t> chosen, const score_intervals& scores, std::int64_t visible,
                            const selection_rules& rules, double slack) {
  if (rules.order == id_order::ascending) {
    const auto at = std::ranges::adjacent_find(chosen, std::greater<>{});
    if (at != chosen.end())
      return structural(fmt::format("block {} stands before block {}: ids are not ascending", at[0], at[1]), at[0], -1);
  }
  if (rules.order == id_order::local_last) {
    const auto own = std::ranges::find(chosen, static_cast<std::int32_t>(visible - 1));
    if (own != chosen.end() && own + 1 != chosen.end())
      return misplaced(fmt::format("own block {} is selected but does not stand last", *own), *own);
  }
  if (rules.order == id_order::score) {
    std::vector<std::int32_t> ranked;
    for (const auto b : chosen)
      if (!is_forced(b, visible, rules)) ranked.push_back(b);
    for (std::size_t i = 1; i < ranked.size(); ++i) {
      const auto first = static_cast<std::size_t>(ranked[i - 1]), second = static_cast<std::size_t>(ranked[i]);
      const double before = rank_of(scores.value[first]), after = rank_of(scores.value[second]);
      if (rank_of(scores.lo[second]) - slack > rank_of(scores.hi[first]) + slack)
        return misplaced(
            fmt::format("block {} (score {:.9g}) stands before block {} (score {:.9g}): ids are not by score",
                        ranked[i - 1], before, ranked[i], after),
            ranked[i - 1]);
    }
  }
  return {};
}

// Half the width of a score's interval: 1.5 steps of a ranking on quantised scores.
double slack_of(std::span<const double> scores, std::int64_t visible, const selection_rules& rules) {
  if (rules.rank_step == 0) return 0;
  double low = infinity, high = -infinity;
  for (std::int64_t b = 0; b < visible; ++b) {
    const double s = scores[static_cast<std::size_t>(b)];
    if (!std::isfinite(s) || is_forced(b, visible, rules)) continue;
    low = std::min(low, s);
    high = std::max(high, s);
  }
  return high > low ? 1.5 * rules.rank_step * (high - low) : 0;
}

selection_fault wrong_pair(selection_fault::kind what, const score_intervals& scores, std::int64_t chosen,
                           std::int64_t left_out, double slack) {
  const auto in = static_cast<std::size_t>(chosen), out = static_cast<std::size_t>(left_out);
  const double chosen_score = rank_of(scores.value[in]), left_out_score = rank_of(scores.value[out]);
  selection_fault f;
  f.what = what;
  f.chosen = chosen;
  f.left_out = left_out;
  f.chosen_score = chosen_score;
  f.left_out_score = left_out_score;
  f.excess = (rank_of(scores.lo[out]) - slack) - (rank_of(scores.hi[in]) + slack);
  f.resolution = 2 * slack;
  // Of equal ends, infinite ones among them, the difference is nothing.
  if (rank_of(scores.hi[in]) != chosen_score) f.resolution += rank_of(scores.hi[in]) - chosen_score;
  if (rank_of(scores.lo[out]) != left_out_score) f.resolution += left_out_score - rank_of(scores.lo[out]);
  f.text = what == selection_fault::kind::tie
               ? fmt::format(
                     "block {} chosen, block {} with the same score {:.9g} left out, though the lower id is promised",
                     chosen, left_out, chosen_score)
               : fmt::format("block {} (score {:.9g}) chosen, block {} (score {:.9g}) left out", chosen, chosen_score,
                             left_out, left_out_score);
  return f;
}

}  // namespace

selection_rules rules_of(const problem& p, const profile& f) {
  return {p.block, p.topk, p.local_blocks, p.init_blocks, f.out_id_order, f.rank_step, f.ties_low_id};
}

selection_fault check_id_structure(std::span<const std::int32_t> ids, std::int64_t visible,
                                   const selection_rules& rules) {
  const auto chosen = chosen_part(ids);
  for (const auto id : ids.subspan(chosen.size()))
    if (id != -1) return structural(fmt::format("id {} stands behind a -1", id), id, -1);
  std::vector<std::int32_t> sorted(chosen.begin(), chosen.end());
  std::ranges::sort(sorted);
  for (const auto id : sorted)
    if (id < 0 || id >= visible)
      return structural(fmt::format("block {} selected, of {} visible ones", id, visible), id, -1);
  if (const auto at = std::ranges::adjacent_find(sorted); at != sorted.end())
    return structural(fmt::format("block {} selected twice", *at), *at, -1);
  const std::int64_t due = std::min(rules.topk, visible);
  if (static_cast<std::int64_t>(sorted.size()) != due)
    return structural(fmt::format("{} blocks selected instead of {}", sorted.size(), due), -1, -1);
  for (std::int64_t b = 0; b < visible; ++b)
    if (is_forced(b, visible, rules) && !std::ranges::binary_search(sorted, static_cast<std::int32_t>(b)))
      return structural(fmt::format("forced block {} left out", b), -1, b);
  return {};
}

selection_fault check_selection(std::span<const std::int32_t> ids, std::span<const double> scores, std::int64_t visible,
                                const selection_rules& rules) {
  return check_selection(ids, score_intervals{scores, scores, scores}, visible, rules);
}

selection_fault check_selection(std::span<const std::int32_t> ids, const score_intervals& scores, std::int64_t visible,
                                const selection_rules& rules) {
  if (auto f = check_id_structure(ids, visible, rules)) return f;
  const auto chosen = chosen_part(ids);
  const double slack = slack_of(scores.value, visible, rules);
  const selection_fault in_order = check_order(chosen, scores, visible, rules, slack);
  if (in_order.what == selection_fault::kind::structure) return in_order;

  std::vector<bool> in_set(static_cast<std::size_t>(visible));
  for (const auto id : chosen) in_set[static_cast<std::size_t>(id)] = true;
  // Of the chosen the one that can't be high, of the others the one that can't be low; and by value, of equal ones the
  // highest chosen and the lowest other id.
  std::int64_t worst_in = -1, best_out = -1, lowest_in = -1, highest_out = -1;
  const auto at = [](std::span<const double> list, std::int64_t b) {
    return rank_of(list[static_cast<std::size_t>(b)]);
  };
  for (std::int64_t b = 0; b < visible; ++b) {
    if (!in_set[static_cast<std::size_t>(b)]) {
      if (best_out < 0 || at(scores.lo, b) > at(scores.lo, best_out)) best_out = b;
      if (highest_out < 0 || at(scores.value, b) > at(scores.value, highest_out)) highest_out = b;
    } else if (!is_forced(b, visible, rules)) {
      if (worst_in < 0 || at(scores.hi, b) <= at(scores.hi, worst_in)) worst_in = b;
      if (lowest_in < 0 || at(scores.value, b) <= at(scores.value, lowest_in)) lowest_in = b;
    }
  }
  if (worst_in < 0 || best_out < 0) return in_order;
  if (at(scores.lo, best_out) - slack > at(scores.hi, worst_in) + slack)
    return wrong_pair(selection_fault::kind::worse_chosen, scores, worst_in, best_out, slack);
  if (rules.ties_low_id && rules.rank_step == 0 && at(scores.value, lowest_in) == at(scores.value, highest_out) &&
      highest_out < lowest_in)
    return wrong_pair(selection_fault::kind::tie, scores, lowest_in, highest_out, slack);
  return in_order;
}

double effect_of(const selection_fault& f) {
  if (!f) return 0;
  if (f.what != selection_fault::kind::worse_chosen || f.resolution == 0) return unbounded_effect;
  const double effect = (f.excess + f.resolution) / f.resolution;
  return std::isfinite(effect) ? effect : unbounded_effect;
}

}  // namespace msabench::judge

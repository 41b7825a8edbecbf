// SPDX-License-Identifier: Apache-2.0
#include "judge/select_row_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

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

std::span<const std::int32_t> chosen_part(std::span<const std::int32_t> ids) {
  return ids.first(static_cast<std::size_t>(std::ranges::find(ids, -1) - ids.begin()));
}

bool is_forced(std::int64_t b, std::int64_t visible, const selection_rules& r) {
  return reference::forced(b, visible - 1, r.local_blocks, r.init_blocks);
}

selection_fault check_order(std::span<const std::int32_t> chosen, std::span<const double> scores, std::int64_t visible,
                            const selection_rules& rules, double slack) {
  if (rules.order == id_order::ascending) {
    const auto at = std::ranges::adjacent_find(chosen, std::greater<>{});
    if (at != chosen.end())
      return structural(fmt::format("block {} stands before block {}: ids are not ascending", at[0], at[1]), at[0], -1);
  }
  if (rules.order == id_order::local_last) {
    const auto own = std::ranges::find(chosen, static_cast<std::int32_t>(visible - 1));
    if (own != chosen.end() && own + 1 != chosen.end())
      return structural(fmt::format("own block {} is selected but does not stand last", *own), *own, -1);
  }
  if (rules.order == id_order::score) {
    std::vector<std::int32_t> ranked;
    for (const auto b : chosen)
      if (!is_forced(b, visible, rules)) ranked.push_back(b);
    for (std::size_t i = 1; i < ranked.size(); ++i) {
      const double before = rank_of(scores[static_cast<std::size_t>(ranked[i - 1])]);
      const double after = rank_of(scores[static_cast<std::size_t>(ranked[i])]);
      if (after - slack > before + slack)
        return structural(
            fmt::format("block {} (score {:.9g}) stands before block {} (score {:.9g}): ids are not by score",
                        ranked[i - 1], before, ranked[i], after),
            ranked[i - 1], -1);
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

selection_fault wrong_pair(selection_fault::kind what, std::int64_t chosen, double chosen_score, std::int64_t left_out,
                           double left_out_score, double slack) {
  selection_fault f;
  f.what = what;
  f.chosen = chosen;
  f.left_out = left_out;
  f.chosen_score = chosen_score;
  f.left_out_score = left_out_score;
  f.excess = (left_out_score - slack) - (chosen_score + slack);
  f.resolution = 2 * slack;
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
  if (auto f = check_id_structure(ids, visible, rules)) return f;
  const auto chosen = chosen_part(ids);
  const double slack = slack_of(scores, visible, rules);
  if (auto f = check_order(chosen, scores, visible, rules, slack)) return f;

  std::vector<bool> in_set(static_cast<std::size_t>(visible));
  for (const auto id : chosen) in_set[static_cast<std::size_t>(id)] = true;
  // The lowest chosen and the highest left-out score; of equal ones the highest and the lowest id.
  std::int64_t worst_in = -1, best_out = -1;
  double lowest = infinity, highest = -infinity;
  for (std::int64_t b = 0; b < visible; ++b) {
    const double s = rank_of(scores[static_cast<std::size_t>(b)]);
    if (!in_set[static_cast<std::size_t>(b)]) {
      if (best_out < 0 || s > highest) {
        best_out = b;
        highest = s;
      }
    } else if (!is_forced(b, visible, rules) && (worst_in < 0 || s <= lowest)) {
      worst_in = b;
      lowest = s;
    }
  }
  if (worst_in < 0 || best_out < 0) return {};
  if (highest - slack > lowest + slack)
    return wrong_pair(selection_fault::kind::worse_chosen, worst_in, lowest, best_out, highest, slack);
  if (rules.ties_low_id && rules.rank_step == 0 && lowest == highest && best_out < worst_in)
    return wrong_pair(selection_fault::kind::tie, worst_in, lowest, best_out, highest, slack);
  return {};
}

}  // namespace msabench::judge

// SPDX-License-Identifier: Apache-2.0
// What `index` would select if it had one of the gross faults of core/perturbation.h: faults of scores change some of
// the row's scores, those of the selection are `select`'s.
#include <algorithm>
#include <cmath>
#include <limits>

#include "judge/detectability.h"
#include "judge/index_expectation.h"
#include "judge/select_expectation.h"
#include "reference/select.h"

namespace msabench::judge {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// The best block of those that are (not) among `ids`, forced ones left out; -1: none.
std::int64_t best_block(const reference::score_row& row, std::span<const std::int32_t> ids, bool chosen,
                        const selection_rules& rules) {
  const auto visible = std::ssize(row.value);
  std::int64_t best = -1;
  for (std::int64_t b = 0; b < visible; ++b) {
    const bool in = std::ranges::find(ids, static_cast<std::int32_t>(b)) != ids.end();
    if (in != chosen || reference::forced(b, visible - 1, rules.local_blocks, rules.init_blocks)) continue;
    if (best < 0 || row.value[static_cast<std::size_t>(b)] > row.value[static_cast<std::size_t>(best)]) best = b;
  }
  return best;
}

}  // namespace

std::optional<std::vector<std::int32_t>> index_expectation::choose_wrongly(perturbation fault, std::size_t at,
                                                                           std::int64_t head) const {
  const reference::score_row& own = want(at, head);
  const auto visible = std::ssize(own.value);
  const auto select = [&](std::span<const double> scores) {
    return reference::select_row(scores, visible, rules_.topk, rules_.local_blocks, rules_.init_blocks);
  };
  const index_probe probe(in_);
  auto scores = own.value;
  const auto ids = select(scores);
  const std::int64_t in = best_block(own, ids, true, rules_), out = best_block(own, ids, false, rules_);
  switch (fault) {
    case perturbation::drop_best_key:
      if (in < 0) return std::nullopt;
      scores[static_cast<std::size_t>(in)] = probe.apply(fault, own.row, own.head, in).value_or(-infinity);
      return select(scores);
    case perturbation::neighbour_head_q:
      if (what_.agreed.hi < 2) return std::nullopt;
      return select(want(at, (head + 1) % what_.agreed.hi).value);
    case perturbation::swap_table_entries: {
      if (in < 0 || out < 0 || !what_.agreed.paged()) return std::nullopt;
      const std::int64_t block = what_.agreed.block, page = swapped_tokens(what_.agreed);
      const std::int64_t a = in * block / page, b = out * block / page;
      for (std::int64_t each = 0; each < visible; ++each)
        for (const std::int64_t moved : {a, b})
          if (each * block < (moved + 1) * page && moved * page < (each + 1) * block)
            scores[static_cast<std::size_t>(each)] = probe.with_swapped_pages(own.row, own.head, each, a, b);
      return select(scores);
    }
    case perturbation::scale_left_out:
    case perturbation::scale_of_page:
      for (std::size_t b = 0; b < scores.size(); ++b)
        scores[b] = probe.apply(fault, own.row, own.head, static_cast<std::int64_t>(b)).value_or(scores[b]);
      return select(scores);
    case perturbation::nan_wins:
      // A NaN key is known by the open end of its block's interval.
      for (std::size_t b = 0; b < scores.size(); ++b)
        if (own.lo[b] == -infinity) scores[b] = infinity;
      return select(scores);
    default: {
      const perturbable_selection selection({own.value, want(at, 0).value, {}, visible, 0}, rules_);
      return selection.apply(fault);
    }
  }
}

detectability index_expectation::measure() const {
  const auto sampled = rows_to_perturb(map_, rows_, what_.agreed);
  // Perturbed sets come ascending.
  selection_rules as_set = rules_;
  as_set.order = id_order::any;
  return weakest_of(what_.targets, [&](perturbation fault) {
    effect strongest;
    for (const std::size_t at : sampled)
      for (std::int64_t head = 0; head < what_.agreed.hi; ++head) {
        if (want(at, head).value.empty()) continue;
        const auto ids = choose_wrongly(fault, at, head);
        if (!ids) continue;
        const double ratio = effect_of(judge(want(at, head), *ids, as_set));
        if (ratio > strongest.ratio) strongest = {ratio, "K5"};
      }
    return strongest;
  });
}

}  // namespace msabench::judge

// SPDX-License-Identifier: Apache-2.0
#include "core/dtype.h"
#include "core/error.h"
#include "judge/answers.h"
#include "judge/detectability.h"
#include "judge/ids_check.h"
#include "judge/input.h"
#include "judge/select_expectation.h"

namespace msabench::judge {
namespace {}  // namespace

select_expectation::select_expectation(const subject& what, std::span<const std::int64_t> rows)
    : what_(what),
      in_{what.agreed, input(what, slot::scores), input(what, slot::cu_seqlens_q), input(what, slot::kv_lens)},
      map_(in_.cu_seqlens_q, in_.kv_lens),
      rules_(rules_of(what.agreed, what.delivers)),
      rows_(rows.begin(), rows.end()) {}

void select_expectation::scores_of(std::int64_t row, std::int64_t head, std::vector<double>& scores) const {
  const std::int64_t visible = map_.visible_blocks(row, what_.agreed.block);
  if (visible > in_.scores.desc.shape[2]) throw suite_error("a row sees more blocks than it has scores");
  scores.resize(static_cast<std::size_t>(visible));
  if (visible > 0) widen(in_.scores.data, in_.scores.desc.type, in_.scores.offset(head, row), visible, scores.data());
}

std::vector<check_result> select_expectation::check(const launch& outputs, int launch_index,
                                                    std::uint64_t poison_seed) const {
  const tensor_view ids = ids_of(what_, outputs);
  const ids_check check(what_, map_, ids);
  std::vector<double> scores;
  const auto scored = [&](std::size_t at, std::int64_t head, std::span<const std::int32_t> chosen,
                          std::int64_t visible) {
    scores_of(rows_[at], head, scores);
    return check_selection(chosen, scores, visible, rules_);
  };
  return {check.written(launch_index, poison_seed), check.choice(rows_, rules_, scored)};
}

detectability select_expectation::measure() const {
  std::vector<perturbable_selection> rows;
  for (const std::size_t at : rows_to_perturb(map_, rows_, what_.agreed)) {
    const std::int64_t row = rows_[at];
    // The row before in the same sequence, or the one after for the first.
    std::int64_t neighbour = -1;
    for (const std::int64_t other : {row - 1, row + 1})
      if (neighbour < 0 && other >= 0 && other < map_.total_rows() && map_[other].sequence == map_[row].sequence)
        neighbour = other;
    for (std::int64_t head = 0; head < what_.agreed.hkv; ++head) {
      perturbable_selection::given g;
      g.visible = map_.visible_blocks(row, what_.agreed.block);
      scores_of(row, head, g.own);
      // Head 0 sees as many blocks: the row is the same.
      scores_of(row, 0, g.head0);
      if (neighbour >= 0) {
        g.neighbour_visible = map_.visible_blocks(neighbour, what_.agreed.block);
        scores_of(neighbour, head, g.neighbour);
      }
      if (g.visible > 0) rows.emplace_back(std::move(g), rules_);
    }
  }
  // Perturbed sets come ascending, so any declared order but that one is beside the point here.
  selection_rules as_set = rules_;
  as_set.order = id_order::any;
  return weakest_of(what_.targets, [&](perturbation fault) {
    effect strongest;
    for (const auto& row : rows) {
      const auto ids = row.apply(fault);
      if (!ids) continue;
      const auto& given = row.scores();
      const double ratio = effect_of(check_selection(*ids, given.own, given.visible, as_set));
      if (ratio > strongest.ratio) strongest = {ratio, "K5"};
    }
    return strongest;
  });
}

void select_expectation::answer(answers& into, const launch&) const {
  std::vector<double> scores;
  for (const std::int64_t row : rows_)
    for (std::int64_t head = 0; head < what_.agreed.hkv; ++head) {
      scores_of(row, head, scores);
      into.set_ids(
          row, head,
          reference::select_row(scores, std::ssize(scores), rules_.topk, rules_.local_blocks, rules_.init_blocks));
    }
}

}  // namespace msabench::judge

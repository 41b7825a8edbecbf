// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/dtype.h"
#include "core/error.h"
#include "core/poison.h"
#include "judge/detectability.h"
#include "judge/select_expectation.h"
#include "judge/value_scan.h"

namespace msabench::judge {
namespace {

tensor_view input(const subject& what, slot s) {
  const auto found = what.inputs.find(s);
  return found == what.inputs.end() ? tensor_view{} : found->second;
}

// The ids of a launch as [T,Hkv,topk], whatever layout was delivered.
tensor_view ids_of(const subject& what, const launch& l) {
  const auto found = l.outputs.find(slot::ids);
  if (found == l.outputs.end() || found->second.desc.shape.size() != 3)
    throw suite_error("the launch of a select case has no tensor ids");
  tensor_view ids = found->second;
  if (what.delivers.out_id_layout == id_layout::htk) {
    std::swap(ids.desc.shape[0], ids.desc.shape[1]);
    std::swap(ids.desc.strides[0], ids.desc.strides[1]);
  }
  return ids;
}

void read_ids(const tensor_view& ids, std::int64_t row, std::int64_t head, std::vector<std::int32_t>& list) {
  for (std::size_t i = 0; i < list.size(); ++i) list[i] = ids.int_at(row, head, i);
}

// A violation against what an honest ranking may confuse; of order and set, without measure.
double effect_of(const selection_fault& f) {
  if (!f) return 0;
  if (f.what != selection_fault::kind::worse_chosen || f.resolution == 0) return unbounded_effect;
  return (f.excess + f.resolution) / f.resolution;
}

// Larger is worse; structure before everything.
double severity(const selection_fault& f) {
  switch (f.what) {
    case selection_fault::kind::none:
      return -1;
    case selection_fault::kind::tie:
      return 0;
    case selection_fault::kind::worse_chosen:
      return std::min(f.excess, unbounded_effect);
    case selection_fault::kind::structure:
      return 2 * unbounded_effect;
  }
  return 0;
}

}  // namespace

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

check_result select_expectation::check_written(const tensor_view& ids, int launch_index,
                                               std::uint64_t poison_seed) const {
  check_result c;
  c.id = "K0";
  c.unit = "elements";
  std::int64_t unwritten = 0, not_empty = 0;
  const bool any_empty_value = what_.delivers.empty_row == empty_form::undefined;
  for (std::int64_t row = 0; row < map_.total_rows(); ++row) {
    const bool empty = map_.visible_blocks(row, what_.agreed.block) == 0;
    if (empty && any_empty_value) continue;
    for (std::int64_t head = 0; head < what_.agreed.hkv; ++head)
      for (std::int64_t i = 0; i < what_.agreed.topk; ++i) {
        const bool poison = is_poison(ids, ids.offset(row, head, i), launch_index, poison_seed);
        const std::int32_t got = ids.int_at(row, head, i);
        if (!poison && (!empty || got == -1)) continue;
        // The first of the graver kind is shown.
        if ((poison && unwritten == 0) || (!poison && unwritten == 0 && not_empty == 0))
          c.worst = {slot::ids, {row, head, i}, value_scan::axes_of(slot::ids), static_cast<double>(got), -1};
        ++(poison ? unwritten : not_empty);
      }
  }
  c.passed = unwritten == 0 && not_empty == 0;
  if (unwritten > 0) {
    c.kind = fail_kind::contract;
    c.value = static_cast<double>(unwritten);
    c.note = fmt::format("{} ids never written", unwritten);
  } else if (not_empty > 0) {
    c.kind = fail_kind::selection;
    c.value = static_cast<double>(not_empty);
    c.note = fmt::format("{} ids of empty rows are not -1", not_empty);
  }
  return c;
}

check_result select_expectation::check_choice(const tensor_view& ids) const {
  check_result c;
  c.id = "K5";
  c.unit = "score";
  selection_fault worst;
  std::int64_t wrong = 0;
  std::vector<std::int32_t> chosen(static_cast<std::size_t>(what_.agreed.topk));
  std::vector<double> scores;
  const auto consider = [&](const selection_fault& f, std::int64_t row, std::int64_t head) {
    if (!f) return;
    ++wrong;
    if (severity(f) <= severity(worst)) return;
    worst = f;
    c.worst = {
        slot::ids, {row, head}, {"row", "index head"}, static_cast<double>(f.chosen), static_cast<double>(f.left_out)};
  };
  // Structure costs nothing, so every row is held to it; the scores of the sampled ones are compared.
  std::size_t next = 0;
  for (std::int64_t row = 0; row < map_.total_rows(); ++row) {
    const std::int64_t visible = map_.visible_blocks(row, what_.agreed.block);
    const bool sampled_row = next < rows_.size() && rows_[next] == row;
    if (sampled_row) ++next;
    if (visible == 0) continue;
    for (std::int64_t head = 0; head < what_.agreed.hkv; ++head) {
      read_ids(ids, row, head, chosen);
      if (sampled_row) {
        scores_of(row, head, scores);
        consider(check_selection(chosen, scores, visible, rules_), row, head);
      } else {
        consider(check_id_structure(chosen, visible, rules_), row, head);
      }
    }
  }
  c.passed = wrong == 0;
  if (!c.passed) {
    c.kind = fail_kind::selection;
    c.value = std::min(std::max(worst.excess, 0.0), unbounded_effect);
    if (worst.resolution > 0) c.terms = {{"rank_step", worst.resolution}};
    c.named = worst.text;
    c.note = fmt::format("{} rows x index heads wrong", wrong);
  }
  return c;
}

std::vector<check_result> select_expectation::check(const launch& outputs, int launch_index,
                                                    std::uint64_t poison_seed) const {
  const tensor_view ids = ids_of(what_, outputs);
  return {check_written(ids, launch_index, poison_seed), check_choice(ids)};
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

}  // namespace msabench::judge

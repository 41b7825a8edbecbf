// SPDX-License-Identifier: Apache-2.0
#include "judge/ids_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/poison.h"
#include "judge/detectability.h"
#include "judge/input.h"
#include "judge/value_scan.h"

namespace msabench::judge {
namespace {

// Larger is worse; structure before everything.
double severity(const selection_fault& f) {
  switch (f.what) {
    case selection_fault::kind::none:
      return -1;
    case selection_fault::kind::tie:
    case selection_fault::kind::order:
      return 0;
    case selection_fault::kind::worse_chosen:
      return std::min(f.excess, unbounded_effect);
    case selection_fault::kind::structure:
      return 2 * unbounded_effect;
  }
  return 0;
}

}  // namespace

tensor_view ids_of(const subject& what, const launch& l) {
  const auto found = l.outputs.find(slot::ids);
  if (found == l.outputs.end() || found->second.desc.shape.size() != 3)
    throw suite_error("the launch has no tensor ids");
  return tokens_first(found->second, what.delivers.out_id_layout);
}

check_result ids_check::written(int launch_index, std::uint64_t poison_seed) const {
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
        const bool poison = is_poison(ids_, ids_.offset(row, head, i), launch_index, poison_seed);
        const std::int32_t got = ids_.int_at(row, head, i);
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

check_result ids_check::choice(std::span<const std::int64_t> rows, const selection_rules& rules,
                               const scored_check& scored) const {
  check_result c;
  c.id = "K5";
  c.unit = "score";
  selection_fault worst;
  std::int64_t wrong = 0;
  std::vector<std::int32_t> chosen(static_cast<std::size_t>(what_.agreed.topk));
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
    const bool sampled_row = next < rows.size() && rows[next] == row;
    if (sampled_row) ++next;
    if (visible == 0) continue;
    for (std::int64_t head = 0; head < what_.agreed.hkv; ++head) {
      for (std::size_t i = 0; i < chosen.size(); ++i) chosen[i] = ids_.int_at(row, head, i);
      consider(sampled_row ? scored(next - 1, head, chosen, visible) : check_id_structure(chosen, visible, rules), row,
               head);
    }
  }
  c.passed = wrong == 0;
  if (!c.passed) {
    // A tie or an order that was worst of all: every set is one that an honest ranking selects, but not as promised.
    if (worst.what == selection_fault::kind::tie)
      c.promise = "ties_low_id";
    else if (worst.what == selection_fault::kind::order)
      c.promise = "out_id_order";
    else
      c.kind = fail_kind::selection;
    c.value = std::min(std::max(worst.excess, 0.0), unbounded_effect);
    if (worst.resolution > 0) c.terms = {{rules.rank_step > 0 ? "rank_step" : "scores", worst.resolution}};
    c.named = worst.text;
    c.note = fmt::format("{} rows x index heads wrong", wrong);
  }
  return c;
}

}  // namespace msabench::judge

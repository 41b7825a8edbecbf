// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "judge/answers.h"
#include "judge/cure.h"
#include "judge/ids_check.h"
#include "judge/index_expectation.h"
#include "judge/limits.h"
#include "judge/value_scan.h"
#include "reference/select.h"

namespace msabench::judge {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

constexpr std::size_t rows_tried_for_cure = 8;

const tensor_view* lse_of(const subject& what, const launch& l) {
  const auto found = l.outputs.find(slot::lse_idx);
  const bool given = found != l.outputs.end() && !found->second.desc.shape.empty();
  return given && what.delivers.lse != lse_form::none ? &found->second : nullptr;
}

lse_gauges gauges_of(const reference::index_lse_row& row) { return {row.n, row.m, row.lse, row.eta_bar}; }

constexpr cure_search::store_field store_fields[] = {
    {"score_store", &numerics::score_store, truncates_score},
    {"score_acc", &numerics::score_acc, 0},
};

}  // namespace

index_expectation::index_expectation(const subject& what, std::span<const std::int64_t> rows)
    : what_(what),
      in_(score_inputs_of(what_)),
      map_(in_.cu_seqlens_q, in_.kv_lens),
      r_(index_roundoffs(what.agreed, what.declared)),
      rules_(rules_of(what.agreed, what.delivers)),
      rows_(rows.begin(), rows.end()),
      want_(reference::score(in_, rows, interval_model_of(what.agreed, what.delivers, what.declared))) {
  // Equal scores are equal in an implementation's own arithmetic only where that rounds nothing.
  rules_.ties_low_id = rules_.ties_low_id && scores_are_exact(what.definition, what.agreed);
}

selection_fault index_expectation::judge(const reference::score_row& want, std::span<const std::int32_t> ids,
                                         const selection_rules& rules) const {
  return check_selection(ids, score_intervals{want.value, want.lo, want.hi}, std::ssize(want.value), rules);
}

// The log-sum-exp is for training, whose inputs are finite; elsewhere it has only to be written.
check_result index_expectation::check_lse_written(const tensor_view& lse, int launch_index,
                                                  std::uint64_t poison_seed) const {
  value_scan scan(launch_index, poison_seed);
  const bool finite = what_.definition.family != "special";
  for (std::int64_t row = 0; row < map_.total_rows(); ++row) {
    const bool empty = map_.visible_keys(row) == 0;
    if (empty && what_.delivers.empty_row == empty_form::undefined) continue;
    for (std::int64_t head = 0; head < what_.agreed.hi; ++head) {
      const value_scan::span one{slot::lse_idx, &lse, lse.offset(row, head), 1, {row, head}};
      if (empty)
        scan.expect_exactly(one, -infinity);
      else if (finite)
        scan.expect_finite(one);
      else
        scan.expect_written(one, true);
    }
  }
  return scan.result();
}

check_result index_expectation::check_lse(const tensor_view* lse, const tensor_view& ids) const {
  check_result c;
  c.id = "K2";
  c.unit = "abs";
  if (lse == nullptr) {
    c.observed = false;
    c.note = "no lse_idx";
    return c;
  }
  const auto wanted = reference::index_lse(in_, ids, rows_, score_error_of(r_));
  const reference::index_lse_row* worst = nullptr;
  double worst_ratio = -1;
  std::vector<reference::index_lse_row> failing;
  std::int64_t failing_count = 0;
  for (const auto& row : wanted) {
    if (row.n == 0 || std::isinf(row.eta_bar)) continue;
    const double ratio = ratio_to(limit_of_lse(r_, gauges_of(row)).total, lse->at(row.row, row.head), row.lse);
    if (ratio > worst_ratio) {
      worst_ratio = ratio;
      worst = &row;
    }
    if (ratio <= 1) continue;
    ++failing_count;
    if (failing.size() < rows_tried_for_cure) failing.push_back(row);
  }
  c.passed = failing_count == 0;
  if (worst != nullptr) {
    const auto limit = limit_of_lse(r_, gauges_of(*worst));
    c.worst = {slot::lse_idx,
               {worst->row, worst->head},
               value_scan::axes_of(slot::lse_idx),
               lse->at(worst->row, worst->head),
               worst->lse};
    c.value = std::abs(c.worst.got - c.worst.want);
    c.limit = limit.total;
    c.terms = listed(limit);
  }
  if (!c.passed) {
    c.kind = std::isfinite(c.worst.got) ? fail_kind::numeric : fail_kind::nonfinite;
    c.cure = find_lse_cure(what_, in_, ids, *lse, failing);
    c.note = fmt::format("{} rows x index heads exceed the limit", failing_count);
  }
  return c;
}

std::string find_lse_cure(const subject& what, const reference::score_inputs& in, const tensor_view& ids,
                          const tensor_view& lse, std::span<const reference::index_lse_row> failing) {
  const auto passes = [&](const numerics& n) {
    const roundoffs r = index_roundoffs(what.agreed, n);
    return std::ranges::all_of(failing, [&](const reference::index_lse_row& row) {
      const std::int64_t rows[] = {row.row};
      const auto heads = reference::index_lse(in, ids, rows, score_error_of(r));
      const auto& again = heads[static_cast<std::size_t>(row.head)];
      return ratio_to(limit_of_lse(r, gauges_of(again)).total, lse.at(row.row, row.head), again.lse) <= 1;
    });
  };
  const cure_search search(what, passes);
  const roundoffs r = index_roundoffs(what.agreed, what.declared);
  std::int64_t keys = 1;
  for (const auto& row : failing) keys = std::max(keys, row.n);
  std::string cure = search.stores(store_fields);
  if (cure.empty()) cure = search.chain(&numerics::chain_row_sum, "chain_row_sum", r.kappa_l(keys), keys);
  if (cure.empty())
    cure = search.chain(&numerics::chain_score, "chain_score", r.kappa_s, std::int64_t{what.agreed.di} + 2);
  if (cure.empty()) cure = search.operands(what.agreed.q_idx);
  if (cure.empty()) cure = search.exponential();
  return cure;
}

std::vector<std::int32_t> index_expectation::own_choice(std::size_t at, std::int64_t head) const {
  const auto& row = want(at, head);
  return reference::select_row(row.value, std::ssize(row.value), rules_.topk, rules_.local_blocks, rules_.init_blocks);
}

// The block that may score highest of those left out is tried in the place of each chosen one.
bool index_expectation::leaves_no_choice(std::size_t at, std::int64_t head) const {
  const auto& row = want(at, head);
  const auto own = own_choice(at, head);
  const auto visible = std::ssize(row.value);
  std::int32_t stranger = -1;
  for (std::int32_t b = 0; b < visible; ++b)
    if (std::ranges::find(own, b) == own.end() &&
        (stranger < 0 || row.hi[static_cast<std::size_t>(b)] > row.hi[static_cast<std::size_t>(stranger)]))
      stranger = b;
  if (stranger < 0) return true;
  selection_rules as_set = rules_;
  as_set.order = id_order::any;
  for (const std::int32_t chosen : own) {
    if (reference::forced(chosen, visible - 1, rules_.local_blocks, rules_.init_blocks)) continue;
    auto other = own;
    std::ranges::replace(other, chosen, stranger);
    if (!judge(row, other, as_set)) return false;
  }
  return true;
}

std::vector<check_result> index_expectation::check(const launch& outputs, int launch_index,
                                                   std::uint64_t poison_seed) const {
  const tensor_view ids = ids_of(what_, outputs);
  const tensor_view* lse = lse_of(what_, outputs);
  const ids_check check(what_, map_, ids);
  const auto scored = [&](std::size_t at, std::int64_t head, std::span<const std::int32_t> chosen, std::int64_t) {
    return judge(want(at, head), chosen, rules_);
  };
  check_result written = check.written(launch_index, poison_seed);
  if (written.passed && lse != nullptr) written = check_lse_written(*lse, launch_index, poison_seed);
  return {written, check.choice(rows_, rules_, scored), check_lse(lse, ids)};
}

void index_expectation::answer(answers& into, const launch& outputs) const {
  for (std::size_t at = 0; at < rows_.size(); ++at)
    for (std::int64_t head = 0; head < what_.agreed.hkv; ++head) into.set_ids(rows_[at], head, own_choice(at, head));
  if (lse_of(what_, outputs) == nullptr) return;
  for (const auto& row : reference::index_lse(in_, ids_of(what_, outputs), rows_, score_error_of(r_)))
    into.set(slot::lse_idx, std::vector{row.row, row.head}, row.lse,
             row.n == 0 ? 0 : limit_of_lse(r_, gauges_of(row)).total);
}

}  // namespace msabench::judge

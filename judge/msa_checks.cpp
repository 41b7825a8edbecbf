// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "judge/answers.h"
#include "judge/detectability.h"
#include "judge/ids_check.h"
#include "judge/msa_expectation.h"

namespace msabench::judge {
namespace {

bool is_of_attention(perturbation fault, const problem& p) {
  // Scales of keys and values; without these of index keys.
  if (fault == perturbation::scale_left_out) return p.kv_scale != 0;
  switch (fault) {
    case perturbation::drop_key:
    case perturbation::double_key:
    case perturbation::drop_heavy_key:
    case perturbation::key_past_diagonal:
    case perturbation::drop_block:
    case perturbation::double_block:
    case perturbation::swap_block:
    case perturbation::neighbour_head_v:
    case perturbation::swap_table_entries:
    case perturbation::accumulate_16bit:
    case perturbation::scores_16bit:
    case perturbation::rescale_forgotten:
    case perturbation::scale_of_other:
    case perturbation::scale_of_next_head:
    case perturbation::scale_of_page:
    case perturbation::rounded_again:
      return true;
    default:
      return false;
  }
}

// The same case with the faults of one branch as targets.
subject with_targets(const subject& what, bool of_attention) {
  subject part = what;
  std::erase_if(part.targets, [&](perturbation fault) { return is_of_attention(fault, what.agreed) != of_attention; });
  return part;
}

std::vector<std::int32_t> packed(const tensor_view& ids) {
  const auto& shape = ids.desc.shape;
  std::vector<std::int32_t> all;
  for (std::int64_t row = 0; row < shape[0]; ++row)
    for (std::int64_t head = 0; head < shape[1]; ++head)
      for (std::int64_t i = 0; i < shape[2]; ++i) all.push_back(ids.int_at(row, head, i));
  return all;
}

// The checks of both branches in one list: K0 is that of the ids if it fails, else that of the values.
void join(std::vector<check_result>& checks, std::vector<check_result> attention) {
  for (auto& c : attention) {
    const auto same = std::ranges::find(checks, c.id, &check_result::id);
    if (same == checks.end())
      checks.push_back(std::move(c));
    else if (same->passed)
      *same = std::move(c);
  }
}

}  // namespace

msa_expectation::msa_expectation(const subject& what, std::span<const std::int64_t> rows)
    : what_(what), rows_(rows.begin(), rows.end()), index_(with_targets(what, false), rows) {
  if (!plants_selection(what.definition)) {
    auto of_main_branch = std::make_unique<recall>(attend_inputs_of(what_), index_.rows(), rows_);
    if (!of_main_branch->empty()) recall_ = std::move(of_main_branch);
  }
}

std::unique_ptr<msa_expectation::attention_part> msa_expectation::attention_on(
    std::vector<std::int32_t> ids, std::span<const std::int64_t> rows) const {
  auto part = std::make_unique<attention_part>();
  part->ids = std::move(ids);
  subject attention = with_targets(what_, true);
  attention.agreed.asked.in_id_layout = id_layout::thk;  // that of `part->ids`
  const std::int64_t width = std::int64_t{what_.agreed.hkv} * what_.agreed.topk;
  const auto total = std::ssize(part->ids) / std::max<std::int64_t>(1, width);
  attention.inputs[slot::ids] = {part->ids.data(), msabench::packed(i32, {total, what_.agreed.hkv, what_.agreed.topk})};
  part->judged = std::make_unique<attend_expectation>(attention, rows);
  return part;
}

const attend_expectation& msa_expectation::attention_on_returned(const tensor_view& ids) const {
  auto returned = packed(ids);
  if (!last_ || last_->ids != returned) last_ = attention_on(std::move(returned), rows_);
  return *last_->judged;
}

// The oracle's own selection on the checked rows. Of the others only which are empty is asked for: block 0 stands for
// any.
std::vector<std::int32_t> msa_expectation::own_ids() const {
  const auto& map = index_.rows();
  const std::int64_t heads = what_.agreed.hkv, topk = what_.agreed.topk;
  std::vector<std::int32_t> all(static_cast<std::size_t>(map.total_rows() * heads * topk), -1);
  const auto at = [&](std::int64_t row, std::int64_t head) { return all.begin() + (row * heads + head) * topk; };
  for (std::int64_t row = 0; row < map.total_rows(); ++row)
    for (std::int64_t head = 0; head < heads && map.visible_blocks(row, what_.agreed.block) > 0; ++head)
      *at(row, head) = 0;
  for (std::size_t i = 0; i < rows_.size(); ++i)
    for (std::int64_t head = 0; head < heads; ++head) std::ranges::copy(index_.own_choice(i, head), at(rows_[i], head));
  return all;
}

std::vector<check_result> msa_expectation::check_without_ids(const launch& outputs, int launch_index,
                                                             std::uint64_t poison_seed) const {
  check_result k5;
  k5.id = "K5";
  k5.unit = "score";
  k5.observed = false;
  k5.note = "selection not observed: no ids";
  std::vector<std::int64_t> decided;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    bool all_heads = true;
    for (std::int64_t head = 0; head < what_.agreed.hkv; ++head) all_heads &= index_.leaves_no_choice(i, head);
    if (all_heads) decided.push_back(rows_[i]);
  }
  const auto part = attention_on(own_ids(), decided);
  auto checks = part->judged->check(outputs, launch_index, poison_seed);
  checks.push_back(std::move(k5));
  return checks;
}

std::vector<check_result> msa_expectation::check(const launch& outputs, int launch_index,
                                                 std::uint64_t poison_seed) const {
  if (what_.delivers.out_id_order == id_order::none) return check_without_ids(outputs, launch_index, poison_seed);
  auto checks = index_.check(outputs, launch_index, poison_seed);
  std::erase_if(checks, [](const check_result& c) { return c.id == "K2"; });  // of lse_idx, which msa does not have
  const tensor_view ids = ids_of(what_, outputs);
  join(checks, attention_on_returned(ids).check(outputs, launch_index, poison_seed));
  if (recall_)
    for (auto& c : recall_->check(ids)) checks.push_back(std::move(c));
  return checks;
}

// On the oracle's own selection, as everything that is measured is the oracle's.
detectability msa_expectation::measure() const {
  detectability all = attention_on(own_ids(), rows_)->judged->measure();
  const detectability selection = index_.measure();
  if (!selection.judged) return all;
  auto by_fault = std::move(all.by_fault);
  by_fault.insert(by_fault.end(), selection.by_fault.begin(), selection.by_fault.end());
  if (!all.judged || selection.value < all.value) all = selection;
  all.by_fault = std::move(by_fault);
  return all;
}

void msa_expectation::answer(answers& into, const launch& outputs) const {
  index_.answer(into, outputs);
  if (what_.delivers.out_id_order == id_order::none)
    attention_on(own_ids(), rows_)->judged->answer(into, outputs);
  else
    attention_on_returned(ids_of(what_, outputs)).answer(into, outputs);
}

}  // namespace msabench::judge

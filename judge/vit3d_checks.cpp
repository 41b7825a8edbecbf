// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "judge/answers.h"
#include "judge/detectability.h"
#include "judge/value_scan.h"
#include "judge/vit3d_expectation.h"

namespace msabench::judge {
namespace {

bool is_of_rotation(perturbation fault) {
  switch (fault) {
    case perturbation::rope_backwards:
    case perturbation::rope_interleaved:
    case perturbation::rope_all_dims:
    case perturbation::axes_swapped:
    case perturbation::base_of_text:
    case perturbation::dims_of_head:
    case perturbation::merge_ignored:
    case perturbation::t_not_restarted:
    case perturbation::window_ignored:
    case perturbation::two_axes_only:
    case perturbation::frames_apart:
      return true;
    default:
      return false;
  }
}

// One half as a case of its own, with its faults as targets.
subject half_of(const subject& what, op half) {
  subject part = what;
  part.definition.operation = part.agreed.operation = half;
  std::erase_if(part.targets, [&](perturbation fault) { return is_of_rotation(fault) != (half == op::rope3d); });
  return part;
}

std::vector<std::int64_t> all_rows(const subject& what) {
  const auto layout = reference::lay_out(what.inputs.at(slot::grids), what.agreed.vit_window);
  std::vector<std::int64_t> rows(layout.positions.size());
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

const tensor_view* output(const launch& l, slot s) {
  const auto found = l.outputs.find(s);
  return found == l.outputs.end() || found->second.desc.shape.empty() ? nullptr : &found->second;
}

std::vector<double> widened(const tensor_view& x, std::int64_t rows) {
  const std::int64_t heads = x.desc.shape[1], d = x.desc.shape[2];
  std::vector<double> values(static_cast<std::size_t>(rows * heads * d));
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t head = 0; head < heads; ++head)
      widen(x.data, x.desc.type, x.offset(row, head), d, values.data() + (row * heads + head) * d);
  return values;
}

// The checks of both halves in one list; of those that both have, the one that fails.
void join(std::vector<check_result>& checks, std::vector<check_result> more) {
  for (auto& c : more) {
    const auto same = std::ranges::find(checks, c.id, &check_result::id);
    if (same == checks.end())
      checks.push_back(std::move(c));
    else if (same->passed)
      *same = std::move(c);
  }
}

}  // namespace

vit3d_expectation::vit3d_expectation(const subject& what, std::span<const std::int64_t> rows)
    : what_(what), rows_(rows.begin(), rows.end()), rope_(half_of(what, op::rope3d), all_rows(what)) {}

std::unique_ptr<vit3d_expectation::attention_part> vit3d_expectation::attention_on(rotated qk,
                                                                                   const numerics& declared) const {
  auto part = std::make_unique<attention_part>();
  part->on = std::move(qk);
  const auto& segments = rope_.want().layout.cu_segments;
  subject attention = half_of(what_, op::vit_attend);
  attention.declared = declared;
  attention.agreed.batch = std::ssize(segments) - 1;
  const std::int64_t heads = what_.agreed.hq, d = what_.agreed.d, tokens = segments.back();
  attention.inputs[slot::q] = {part->on.q.data(), packed(fp64, {tokens, heads, d})};
  attention.inputs[slot::k] = {part->on.k.data(), packed(fp64, {tokens, heads, d})};
  attention.inputs[slot::cu_segments] = {segments.data(), packed(i32, {std::ssize(segments)})};
  part->judged = std::make_unique<attend_expectation>(attention, rows_);
  return part;
}

vit3d_expectation::rotated vit3d_expectation::exactly_rotated() const {
  rotated all;
  for (const auto& row : rope_.want().rows) {
    all.q.insert(all.q.end(), row.q.begin(), row.q.end());
    all.k.insert(all.k.end(), row.k.begin(), row.k.end());
  }
  return all;
}

// Nobody sees whether q and k are rounded between the halves.
numerics vit3d_expectation::with_rounded_operands() const {
  numerics declared = what_.declared;
  declared.operand = bf16;
  declared.rounded_operands = 2;
  return declared;
}

// What was handed back of the rotation: all of it or nothing, as the contract has these outputs in one bracket.
rope3d_outputs vit3d_expectation::returned(const launch& outputs, int launch_index, std::uint64_t poison_seed) const {
  const rope3d_outputs all{output(outputs, slot::q_rope), output(outputs, slot::k_rope),
                           output(outputs, slot::positions), output(outputs, slot::cu_segments)};
  const auto& layout = rope_.want().layout;
  const std::int64_t tokens = std::ssize(layout.positions);
  const value_scan scan(launch_index, poison_seed);
  const auto hidden = [&](const tensor_view* view, std::int64_t rows) {
    return view == nullptr || scan.is_untouched(*view, rows);
  };
  const bool nothing = hidden(all.q_rope, tokens) && hidden(all.k_rope, tokens) && hidden(all.positions, tokens) &&
                       hidden(all.cu_segments, std::ssize(layout.cu_segments));
  return nothing ? rope3d_outputs{} : all;
}

const attend_expectation& vit3d_expectation::attention_of(const rope3d_outputs& got) const {
  const bool is_seen = got.q_rope != nullptr && got.k_rope != nullptr;
  if (!is_seen) {
    if (!end_to_end_) end_to_end_ = attention_on(exactly_rotated(), with_rounded_operands());
    return *end_to_end_->judged;
  }
  const auto tokens = std::ssize(rope_.want().layout.positions);
  rotated back{widened(*got.q_rope, tokens), widened(*got.k_rope, tokens)};
  if (!last_ || last_->on.q != back.q || last_->on.k != back.k) last_ = attention_on(std::move(back), what_.declared);
  return *last_->judged;
}

std::vector<check_result> vit3d_expectation::check(const launch& outputs, int launch_index,
                                                   std::uint64_t poison_seed) const {
  const rope3d_outputs got = returned(outputs, launch_index, poison_seed);
  if (got.q_rope == nullptr) {
    auto checks = attention_of(got).check(outputs, launch_index, poison_seed);
    check_result rotation;
    rotation.id = "K1r";
    rotation.unit = "abs";
    rotation.observed = false;
    // A case that asks for these outputs is there to see them.
    rotation.gate = !what_.definition.options.bare;
    rotation.note = "rotated q and k are not handed back: rotation is seen by the outputs of attention alone";
    checks.push_back(std::move(rotation));
    return checks;
  }
  auto checks = rope_.check(got, launch_index, poison_seed);
  // Attention on keys that are no numbers says nothing about attention.
  if (checks.front().passed) join(checks, attention_of(got).check(outputs, launch_index, poison_seed));
  return checks;
}

// On the oracle's own rotation, as everything that is measured is the oracle's.
detectability vit3d_expectation::measure() const {
  const numerics declared = what_.definition.options.bare ? with_rounded_operands() : what_.declared;
  detectability all = attention_on(exactly_rotated(), declared)->judged->measure();
  const detectability rotation = rope_.measure();
  if (!rotation.judged) return all;
  auto by_fault = std::move(all.by_fault);
  by_fault.insert(by_fault.end(), rotation.by_fault.begin(), rotation.by_fault.end());
  if (!all.judged || rotation.value < all.value) all = rotation;
  all.by_fault = std::move(by_fault);
  return all;
}

void vit3d_expectation::answer(answers& into, const launch& outputs) const {
  rope_.answer(into, outputs);
  const tensor_view *q = output(outputs, slot::q_rope), *k = output(outputs, slot::k_rope);
  // Poison is NaN.
  const bool is_seen = q != nullptr && k != nullptr && std::isfinite(q->at(0, 0, 0)) && std::isfinite(k->at(0, 0, 0));
  attention_of(is_seen ? rope3d_outputs{q, k, nullptr, nullptr} : rope3d_outputs{}).answer(into, outputs);
}

}  // namespace msabench::judge

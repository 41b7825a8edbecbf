// SPDX-License-Identifier: Apache-2.0
#include "host/launch_recorder.h"

#include <algorithm>
#include <cstring>

#include "host/output_copy.h"
#include "host/steady_inputs.h"
#include "inputs/poison.h"

namespace msabench {

bound_case bind(const input_set& set, const input_set* second) {
  bound_case c;
  c.agreed = set.agreed;
  const auto bound = [](const buffer& b) {
    return bound_tensor{b.where, b.dir, b.desc, b.region ? b.region->data() + b.offset : nullptr};
  };
  for (const buffer& b : set.inputs) c.tensors.push_back(bound(b));
  for (const buffer& b : set.outputs) c.tensors.push_back(bound(b));
  if (second)
    for (const buffer& b : second->outputs) c.second_outputs.push_back(bound(b));
  return c;
}

launch_recorder::launch_recorder(input_set& set, const run_spec& how, bool on_device)
    : set_(set), how_(how), on_device_(on_device), rehearsed_rows_(set.sizes.t), inputs_checksum_(set.inputs_checksum) {
  if (how.rehearse) shorten_lengths();
  if (how.second_plan) {
    second_ = set;
    for (buffer& b : second_->outputs)
      if (b.region)
        b.region = std::make_shared<shared_region>(
            shared_region::create("second plan", b.region->bytes(), b.region->guard_bytes()));
  }
  prepare();
}

void launch_recorder::shorten_lengths() {
  for (const slot where : length_slots) {
    const buffer* b = set_.find(where);
    if (b == nullptr || b->dir != direction::in || !b->region || b->desc.shape[0] == 0) continue;
    auto* values = reinterpret_cast<std::int32_t*>(b->region->data() + b->offset);
    const auto count = static_cast<std::size_t>(b->desc.shape[0]);
    full_lengths_.emplace_back(where, std::vector<std::int32_t>(values, values + count));
    const bool one_sequence = set_.sizes.b < 2;
    if (where == slot::kv_lens) {
      std::fill(values + (one_sequence ? 0 : 1), values + count, 0);
    } else {
      const std::int32_t end = one_sequence ? 0 : values[1];
      std::fill(values + 1, values + count, end);
      if (where == slot::cu_seqlens_q || where == slot::cu_segments) rehearsed_rows_ = end;
    }
  }
  inputs_checksum_ = checksum_inputs(set_, set_.inputs_checksum, [](const buffer& b) {
    return std::ranges::find(length_slots, b.where) != std::end(length_slots);
  });
}

void launch_recorder::restore_lengths() {
  for (const auto& [where, values] : full_lengths_) {
    const buffer* b = set_.find(where);
    std::memcpy(b->region->data() + b->offset, values.data(), values.size() * sizeof values[0]);
  }
  full_lengths_.clear();
  inputs_checksum_ = set_.inputs_checksum;
}

void launch_recorder::prepare() {
  if (next_ < how_.launches) {
    if (set_.before_launch) {
      set_.before_launch(next_);
      inputs_checksum_ = set_.inputs_checksum;
    }
    poison_outputs(set_, next_, how_.poison_seed);
  } else if (second_) {
    poison_outputs(set_, how_.launches, how_.poison_seed);
    poison_outputs(*second_, how_.launches + 1, how_.poison_seed);
  }
}

bool launch_recorder::record(std::span<const launch_report> reports, observation& into) {
  const bool pair_due = next_ == how_.launches && second_;
  if (reports.size() != (pair_due ? 2u : 1u) || next_ > how_.launches || (next_ == how_.launches && !pair_due))
    return false;
  for (std::size_t i = 0; i < reports.size(); ++i) {
    const launch_report& r = reports[i];
    if (r.index != next_ + static_cast<std::int32_t>(i) || r.plan != static_cast<std::int32_t>(i)) return false;
  }
  const bool last = next_ + static_cast<std::int32_t>(reports.size()) >= how_.launches;
  check_inputs(
      !on_device_ || last || std::ranges::any_of(reports, [](const launch_report& r) { return r.status != 0; }), into);
  for (const launch_report& r : reports) {
    const input_set& set = r.plan == 0 ? set_ : *second_;
    for (const violation& v : r.violations) add_violation(into, v);
    check_outputs(set, r.index, r.status != 0, into);
    if (r.status == 0 && !rehearsing()) keep(set, r, into);
  }
  if (rehearsing()) restore_lengths();
  next_ += static_cast<std::int32_t>(reports.size());
  prepare();
  return true;
}

void launch_recorder::record_abnormal_end(observation& into) {
  check_inputs(true, into);
  check_outputs(set_, next_, false, into);
  if (next_ == how_.launches && second_) check_outputs(*second_, next_ + 1, false, into);
}

void launch_recorder::finish(observation& into) {
  if (!all_looked_at_) check_inputs(true, into);
}

void launch_recorder::check_inputs(bool steady_ones_too, observation& into) {
  all_looked_at_ = steady_ones_too;
  if (checksum_inputs(set_, inputs_checksum_, [&](const buffer& b) {
        return steady_ones_too || !is_steady(set_, b, how_);
      }) != inputs_checksum_)
    add_violation(into, {violation::kind::input_modified, std::nullopt, "run", "an input has changed"});
}

void launch_recorder::check_outputs(const input_set& set, std::int32_t index, bool returned_error, observation& into) {
  add_output_damage(set, {index, how_.poison_seed, rows_due(), returned_error}, into);
}

void launch_recorder::keep(const input_set& set, const launch_report& report, observation& into) {
  launch kept = copy_outputs(set, report.index, report.plan, into.launches);
  if (!how_.keep_every_launch) {
    kept.same_as = -1;
    into.launches.clear();
  }
  into.launches.push_back(std::move(kept));
}

}  // namespace msabench

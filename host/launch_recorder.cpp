// SPDX-License-Identifier: Apache-2.0
#include "host/launch_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/hashes.h"
#include "inputs/poison.h"

namespace msabench {
namespace {

// The axis that counts query tokens; -1 if there is none.
int row_axis(const input_set& set, slot where) {
  for (const slot_rule& rule : slots_of(set.agreed.operation)) {
    if (rule.where != where || rule.dir != direction::out) continue;
    int axis = 0;
    std::string_view rest = rule.shape;
    while (!rest.empty()) {
      const auto comma = std::min(rest.find(','), rest.size());
      if (rest.substr(0, comma) == "T") return axis;
      rest.remove_prefix(std::min(comma + 1, rest.size()));
      ++axis;
    }
  }
  return -1;
}

// Calls with (first element's offset, elements) for contiguous runs that together are the tensor's valid rows, in
// order.
template <class Visit>
void for_each_run(const tensor_desc& desc, int axis_of_rows, std::int64_t valid_rows, Visit&& visit) {
  std::vector<std::int64_t> shape = desc.shape;
  if (axis_of_rows >= 0) {
    auto& rows = shape[static_cast<std::size_t>(axis_of_rows)];
    rows = std::min(rows, valid_rows);
  }
  if (std::ranges::find(shape, 0) != shape.end()) return;
  std::size_t outer = shape.size();
  std::int64_t run = 1;
  while (outer > 0 && desc.strides[outer - 1] == run) run *= shape[--outer];
  std::vector<std::int64_t> index(outer, 0);
  for (;;) {
    std::int64_t at = 0;
    for (std::size_t i = 0; i < outer; ++i) at += index[i] * desc.strides[i];
    visit(at, run);
    std::size_t i = outer;
    while (i > 0 && ++index[i - 1] == shape[i - 1]) index[--i] = 0;
    if (i == 0) return;
  }
}

std::string where_in(const damage& d) {
  return d.at < 0 ? fmt::format("{} bytes before its first element", -d.at)
                  : fmt::format("{} bytes from its first element", d.at);
}

}  // namespace

void add_violation(observation& into, violation found) {
  for (const violation& v : into.violations)
    if (v.what == found.what && v.where == found.where && v.entry == found.entry) return;
  into.violations.push_back(std::move(found));
}

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

launch_recorder::launch_recorder(input_set& set, const run_spec& how)
    : set_(set), how_(how), rehearsed_rows_(set.sizes.t), inputs_checksum_(set.inputs_checksum) {
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
  for (const slot where : {slot::cu_seqlens_q, slot::kv_lens, slot::cu_seqlens_kv}) {
    const buffer* b = set_.find(where);
    if (b == nullptr || !b->region || b->desc.shape[0] == 0) continue;
    auto* values = reinterpret_cast<std::int32_t*>(b->region->data() + b->offset);
    const auto count = static_cast<std::size_t>(b->desc.shape[0]);
    full_lengths_.emplace_back(where, std::vector<std::int32_t>(values, values + count));
    const bool one_sequence = set_.sizes.b < 2;
    if (where == slot::kv_lens) {
      std::fill(values + (one_sequence ? 0 : 1), values + count, 0);
    } else {
      const std::int32_t end = one_sequence ? 0 : values[1];
      std::fill(values + 1, values + count, end);
      if (where == slot::cu_seqlens_q) rehearsed_rows_ = end;
    }
  }
  inputs_checksum_ = checksum_inputs(set_);
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
  check_inputs(into);
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
  check_inputs(into);
  check_outputs(set_, next_, false, into);
  if (next_ == how_.launches && second_) check_outputs(*second_, next_ + 1, false, into);
}

void launch_recorder::check_inputs(observation& into) {
  if (checksum_inputs(set_) != inputs_checksum_)
    add_violation(into, {violation::kind::input_modified, std::nullopt, "run", "an input has changed"});
}

void launch_recorder::check_outputs(const input_set& set, std::int32_t index, bool returned_error, observation& into) {
  for (const buffer& b : set.outputs) {
    if (!b.region) continue;
    const int axis = row_axis(set, b.where);
    const damage outside = find_damage(b, rows_due(), axis, index, how_.poison_seed);
    if (outside.band) {
      add_violation(into, {violation::kind::out_of_bounds, b.where, "run",
                           fmt::format("{} was written {}", name(b.where), where_in(outside))});
    } else if (outside.beyond_t) {
      add_violation(into, {violation::kind::beyond_t, b.where, "run",
                           fmt::format("rows of {} at or past T = {} were written, {}", name(b.where), rows_due(),
                                       where_in(outside))});
    }
    if (!returned_error) continue;
    const damage inside = find_damage(b, 0, std::max(axis, 0), index, how_.poison_seed);
    if (inside.band || inside.beyond_t)
      add_violation(into, {violation::kind::wrote_on_error, b.where, "run",
                           fmt::format("{} was written, {}, although run failed", name(b.where), where_in(inside))});
  }
}

void launch_recorder::keep(const input_set& set, const launch_report& report, observation& into) {
  sha256 hash;
  std::vector<std::size_t> starts;
  std::size_t total = 0;
  for (const buffer& b : set.outputs) {
    const auto element = static_cast<std::size_t>(size_bytes(b.desc.type));
    const auto* first = static_cast<const std::byte*>(b.data());
    for_each_run(b.desc, row_axis(set, b.where), set.sizes.t, [&](std::int64_t at, std::int64_t elements) {
      hash.update({first + static_cast<std::size_t>(at) * element, static_cast<std::size_t>(elements) * element});
    });
    starts.push_back(total);
    constexpr std::size_t alignment = 64;
    total += (static_cast<std::size_t>(b.desc.span_elements()) * element + alignment - 1) / alignment * alignment;
  }

  launch kept;
  kept.outputs_sha256 = hash.hex();
  kept.plan = report.plan;
  kept.index = report.index;
  for (std::size_t i = 0; i < into.launches.size() && !kept.memory; ++i) {
    if (into.launches[i].outputs_sha256 != kept.outputs_sha256) continue;
    kept.memory = into.launches[i].memory;
    kept.same_as = into.launches[i].same_as >= 0 ? into.launches[i].same_as : static_cast<std::int32_t>(i);
  }
  if (!kept.memory) {
    auto copy = std::make_shared<std::vector<std::byte>>(total);
    for (std::size_t i = 0; i < set.outputs.size(); ++i) {
      const buffer& b = set.outputs[i];
      const auto bytes = static_cast<std::size_t>(b.desc.span_elements() * size_bytes(b.desc.type));
      if (bytes > 0) std::memcpy(copy->data() + starts[i], b.data(), bytes);
    }
    kept.memory = std::move(copy);
  }
  for (std::size_t i = 0; i < set.outputs.size(); ++i)
    kept.outputs[set.outputs[i].where] = {kept.memory->data() + starts[i], set.outputs[i].desc};
  if (!how_.keep_every_launch) {
    kept.same_as = -1;
    into.launches.clear();
  }
  into.launches.push_back(std::move(kept));
}

}  // namespace msabench

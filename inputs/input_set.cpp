// SPDX-License-Identifier: Apache-2.0
#include "inputs/input_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <ranges>
#include <set>
#include <span>
#include <vector>

#include "core/error.h"
#include "inputs/batch.h"
#include "inputs/checksum.h"
#include "inputs/layout.h"
#include "inputs/operators.h"
#include "inputs/poison.h"

namespace msabench {

namespace {

struct operator_filler {
  op operation;
  void (*fill)(const fill_job&);
};
constexpr operator_filler fillers[] = {
    {op::attend, fill_attend},
    {op::dense, fill_dense},
    {op::msa, fill_msa},
    {op::select, fill_select},
    {op::score, fill_index},
    {op::index, fill_index},
    {op::combine, fill_combine},
    {op::qk_norm_rope, fill_qk_norm_rope},
    {op::attend_backward, fill_attend_backward},
    {op::dense_backward, fill_dense_backward},
    {op::kl, fill_kl},
    {op::vit_attend, fill_vit_attend},
    {op::rope3d, fill_rope3d},
    {op::vit3d, fill_vit3d},
};

extents actual_sizes(const case_spec& c, const problem& p, const batch& rows) {
  extents e = bounds_of(p);
  if (p.operation == op::combine) e.p = c.options.splits;
  e.t = rows.total_q();
  e.b = rows.size();
  e.n = rows.total_kv();
  e.segments = rows.size();
  e.items = std::ssize(c.lengths.grids);
  return e;
}

void check_bounds(const case_spec& c, const problem& p, const batch& rows) {
  // What is counted where segments are made: the items.
  const bool has_items = p.operation == op::rope3d || p.operation == op::vit3d;
  const std::int64_t sequences = has_items ? std::ssize(c.lengths.grids) : rows.size();
  const bool holds = p.operation == c.operation && p.total_q >= rows.total_q() && p.batch >= sequences &&
                     p.total_kv >= rows.total_kv() &&
                     std::all_of(rows.sequences().begin(), rows.sequences().end(),
                                 [&](const sequence& s) { return s.kv_len <= p.max_kv_len; });
  if (!holds) throw suite_error(fmt::format("the agreed problem is not one of case {}", name(c)));
}

// Token tensors are as long as the problem's bounds (plugin rule R4); the number of sequences or segments is told by
// the tensor of their lengths alone.
extents shape_sizes_of(const input_set& set) {
  extents shape_sizes = bounds_of(set.agreed);
  shape_sizes.b = set.sizes.b;
  shape_sizes.segments = set.sizes.segments;
  shape_sizes.items = set.sizes.items;
  // Without lengths there is nothing but the shape to tell how many rows and parts there are.
  if (set.agreed.operation == op::combine) {
    shape_sizes.t = set.sizes.t;
    shape_sizes.p = set.sizes.p;
  }
  return shape_sizes;
}

// `only`: buffers of one direction; empty: all.
void allocate(const case_spec& c, input_set& set, std::optional<direction> only = {}) {
  const problem& p = set.agreed;
  const extents shape_sizes = shape_sizes_of(set);
  for (const slot_rule& rule : slots_of(p.operation)) {
    if (!present(rule, p) || (only && rule.dir != *only)) continue;
    const bool is_lse = rule.where == slot::lse || rule.where == slot::lse_idx;
    if (is_lse && p.asked.lse == lse_form::none && rule.optional) continue;
    if (rule.where == slot::ids && p.asked.out_id_order == id_order::none && rule.optional) continue;
    if (c.options.bare && rule.optional && !is_lse) continue;
    // Of msa, whose selection is judged by its ids.
    if (rule.where == slot::scores && rule.optional) continue;
    const tensor_desc desc = layout_of(rule, p, shape_sizes, c.options.stride);
    if (rule.dir == direction::out) {
      set.outputs.push_back(allocate_output(rule.where, desc));
    } else if (p.layout == page_layout::fused && rule.where == slot::k) {
      fused_cache cache = allocate_fused(desc);
      set.inputs.push_back(std::move(cache.k));
      set.inputs.push_back(std::move(cache.v));
    } else if (!(p.layout == page_layout::fused && rule.where == slot::v)) {
      set.inputs.push_back(allocate_input(rule.where, desc));
    }
  }
}

void fill_lengths(const fill_job& job) {
  const auto fill = [&](slot s, auto value) {
    const auto found =
        std::find_if(job.set.inputs.begin(), job.set.inputs.end(), [&](const buffer& b) { return b.where == s; });
    if (found == job.set.inputs.end() || !found->region) return;
    prepare_whole(*found, job.definition.seed);
    auto* const data = reinterpret_cast<std::int32_t*>(found->region->data());
    for (std::int64_t i = 0; i < found->desc.shape[0]; ++i) data[i] = static_cast<std::int32_t>(value(i));
  };
  fill(slot::cu_seqlens_q, [&](std::int64_t i) { return job.rows.first_row(i); });
  fill(slot::cu_seqlens_kv, [&](std::int64_t i) { return job.rows.first_key(i); });
  fill(slot::cu_segments, [&](std::int64_t i) { return job.rows.first_row(i); });
  fill(slot::kv_lens, [&](std::int64_t i) { return job.rows.at(i).kv_len; });
}

void fill_grids(const fill_job& job) {
  const auto found = std::find_if(job.set.inputs.begin(), job.set.inputs.end(),
                                  [](const buffer& b) { return b.where == slot::grids; });
  if (found == job.set.inputs.end() || !found->region) return;
  prepare_whole(*found, job.definition.seed);
  auto* data = reinterpret_cast<std::int32_t*>(found->region->data());
  for (const grid& g : job.definition.lengths.grids) {
    data[0] = static_cast<std::int32_t>(g.t);
    data[1] = static_cast<std::int32_t>(g.h);
    data[2] = static_cast<std::int32_t>(g.w);
    data += found->desc.strides[0];
  }
}

bool holds_anything(const extent& e) { return e.holds == extent::kind::filled || e.holds == extent::kind::poisoned; }

// Calls visit(region, contents) once for every region of the inputs.
template <class Visit>
void for_each_input_region(const input_set& set, Visit visit) {
  std::set<const shared_region*> seen;
  for (const buffer& b : set.inputs)
    if (b.region && seen.insert(b.region.get()).second) visit(*b.region, b.contents);
}

}  // namespace

buffer& fill_job::input(slot s) const {
  for (buffer& b : set.inputs)
    if (b.where == s) return b;
  throw suite_error(fmt::format("operator {} has no input {}", name(set.agreed.operation), name(s)));
}

void prepare_whole(buffer& b, std::uint64_t seed) {
  const std::uint64_t bytes = b.region->bytes();
  fill_poison_in_parts({b.region->data(), bytes}, b.desc.type, input_poison_launch, seed);
  const auto end = static_cast<std::uint64_t>(b.desc.span_elements() * size_bytes(b.desc.type));
  b.contents = {{0, end, extent::kind::filled}};
  if (end < bytes) b.contents.push_back({end, bytes, extent::kind::poisoned});
}

const buffer* input_set::find(slot s) const {
  for (const auto* list : {&inputs, &outputs})
    for (const buffer& b : *list)
      if (b.where == s) return &b;
  return nullptr;
}

std::map<slot, tensor_view> input_set::views() const {
  std::map<slot, tensor_view> all;
  for (const buffer& b : inputs) all.emplace(b.where, b.view());
  return all;
}

std::uint64_t input_set::bytes() const {
  std::uint64_t total = 0;
  for_each_input_region(*this, [&](const shared_region&, const std::vector<extent>& contents) {
    for (const extent& e : contents)
      if (holds_anything(e)) total += e.end - e.begin;
  });
  for (const buffer& b : outputs)
    if (b.region) total += b.region->bytes();
  return total;
}

input_set make_inputs(const case_spec& c, const problem& agreed, forward_results forward) {
  const batch rows(c);
  check_bounds(c, agreed, rows);
  const auto filler = std::find_if(std::begin(fillers), std::end(fillers),
                                   [&](const operator_filler& f) { return f.operation == c.operation; });
  if (filler == std::end(fillers)) throw suite_error(fmt::format("no inputs for operator {}", name(c.operation)));

  input_set set;
  set.agreed = agreed;
  set.sizes = actual_sizes(c, agreed, rows);
  allocate(c, set);
  const fill_job job{c, rows, set, forward};
  fill_lengths(job);
  fill_grids(job);
  filler->fill(job);
  for (const buffer& b : set.inputs)
    if (b.region && b.contents.empty())
      throw suite_error(fmt::format("no values for input {} of operator {}", name(b.where), name(c.operation)));
  set.inputs_checksum = checksum_inputs(set);
  return set;
}

input_set with_other_outputs(const case_spec& c, const input_set& set, const problem& agreed) {
  input_set other;
  other.agreed = agreed;
  other.sizes = set.sizes;
  allocate(c, other, direction::out);
  other.inputs = set.inputs;
  other.inputs_checksum = set.inputs_checksum;
  return other;
}

input_set with_other_operator(const case_spec& other, const input_set& set, const problem& agreed) {
  const batch rows(other);
  check_bounds(other, agreed, rows);
  input_set made;
  made.agreed = agreed;
  made.sizes = actual_sizes(other, agreed, rows);
  allocate(other, made, direction::out);
  for (const slot_rule& rule : slots_of(agreed.operation)) {
    if (rule.dir != direction::in || !present(rule, agreed)) continue;
    const buffer* found = set.find(rule.where);
    if (!found || found->dir != direction::in ||
        !(found->desc == layout_of(rule, agreed, shape_sizes_of(made), other.options.stride)))
      throw suite_error(fmt::format("input {} of {} is not among those of {}", name(rule.where), name(agreed.operation),
                                    name(set.agreed.operation)));
    made.inputs.push_back(*found);
  }
  made.inputs_checksum = checksum_inputs(made);
  return made;
}

void put_input(input_set& set, slot where, const tensor_view& values) {
  const buffer* to = set.find(where);
  if (!to || to->dir != direction::in || !to->region || to->desc.type != values.desc.type ||
      to->desc.shape.size() != values.desc.shape.size() || to->desc.shape.empty() ||
      to->desc.shape[0] < values.desc.shape[0] ||
      !std::ranges::equal(to->desc.shape | std::views::drop(1), values.desc.shape | std::views::drop(1)))
    throw suite_error(fmt::format("input {} of {} can't hold these values", name(where), name(set.agreed.operation)));
  const std::size_t last = values.desc.shape.size() - 1;
  if (to->desc.strides[last] != 1 || values.desc.strides[last] != 1)
    throw suite_error(fmt::format("lines of {} are not contiguous", name(where)));
  const auto size = static_cast<std::size_t>(size_bytes(values.desc.type));
  const std::size_t line = static_cast<std::size_t>(values.desc.shape[last]) * size;
  std::byte* const data = to->region->data() + to->offset;
  const auto* from = static_cast<const std::byte*>(values.data);
  std::vector<std::int64_t> index(last, 0);
  for (bool more = values.desc.elements() > 0; more;) {
    std::int64_t source = 0, target = 0;
    for (std::size_t i = 0; i < last; ++i) {
      source += index[i] * values.desc.strides[i];
      target += index[i] * to->desc.strides[i];
    }
    std::memcpy(data + static_cast<std::size_t>(target) * size, from + static_cast<std::size_t>(source) * size, line);
    std::size_t axis = last;
    while (axis > 0 && ++index[axis - 1] == values.desc.shape[axis - 1]) index[--axis] = 0;
    more = axis > 0;
  }
  set.inputs_checksum = checksum_inputs(set, set.inputs_checksum, [&](const buffer& b) { return b.where == where; });
}

namespace {

// In pieces, since those of a large input are tens of GiB: their checksums, and then one of these.
std::uint64_t checksum_of_filled(const buffer& b) {
  constexpr std::uint64_t piece = std::uint64_t{4} << 20;
  std::vector<std::span<const std::byte>> pieces;
  for (const extent& e : b.contents)
    for (std::uint64_t at = e.begin; holds_anything(e) && at < e.end; at += piece)
      pieces.emplace_back(b.region->data() + at, std::min(piece, e.end - at));
  std::vector<std::uint64_t> sums(pieces.size());
#pragma omp parallel for schedule(dynamic, 4) if (pieces.size() > 4)
  for (std::size_t i = 0; i < pieces.size(); ++i) sums[i] = checksum(pieces[i], 0);
  return checksum(std::as_bytes(std::span(sums)), 0);
}

}  // namespace

input_checksums checksum_inputs(const input_set& set) {
  return checksum_inputs(set, input_checksums(set.inputs.size(), 0), [](const buffer&) { return true; });
}

input_checksums checksum_inputs(const input_set& set, const input_checksums& known,
                                const std::function<bool(const buffer&)>& chosen) {
  std::set<const shared_region*> wanted;
  for (const buffer& b : set.inputs)
    if (b.region && chosen(b)) wanted.insert(b.region.get());
  input_checksums sums = known;
  for (std::size_t i = 0; i < set.inputs.size(); ++i) {
    const buffer& b = set.inputs[i];
    if (!b.region || wanted.erase(b.region.get()) == 0) continue;
    sums[i] = checksum_of_filled(b);
  }
  return sums;
}

const buffer* find_modified_input(const case_spec& c, const input_set& set) {
  const input_set fresh = make_inputs(c, set.agreed);
  for (std::size_t i = 0; i < set.inputs.size(); ++i) {
    const buffer &seen = set.inputs[i], &made = fresh.inputs[i];
    for (const extent& e : made.contents) {
      if (!holds_anything(e)) continue;
      if (std::memcmp(seen.region->data() + e.begin, made.region->data() + e.begin, e.end - e.begin) != 0) return &seen;
    }
  }
  return nullptr;
}

}  // namespace msabench

// SPDX-License-Identifier: Apache-2.0
#include "inputs/lone_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "inputs/batch.h"
#include "inputs/layout.h"
#include "inputs/operators.h"

namespace msabench {

namespace {

constexpr std::int64_t most_copied_bytes = std::int64_t{32} << 20;

// The keys that the row sees: a call in which it is the last token has no others.
std::int64_t keys_seen(const batch_row& row) { return std::max<std::int64_t>(0, row.position + 1); }

const slot_rule& rule_of(const problem& p, slot where, direction dir) {
  for (const slot_rule& rule : slots_of(p.operation))
    if (rule.where == where && rule.dir == dir) return rule;
  throw suite_error(fmt::format("operator {} has no tensor {}", name(p.operation), name(where)));
}

// Copies the part of `from` that begins at `first` (an index per axis) and has the shape of `to`.
void copy_part(const buffer& from, const std::vector<std::int64_t>& first, buffer& to) {
  const tensor_desc &source = from.desc, &target = to.desc;
  const std::int64_t size = size_bytes(target.type);
  const std::size_t outer = target.shape.size() - 1;
  const auto* read = static_cast<const std::byte*>(from.data());
  std::byte* write = to.region->data() + to.offset;
  std::vector<std::int64_t> index(outer, 0);
  for (;;) {
    std::int64_t at = first[outer], into = 0;
    for (std::size_t i = 0; i < outer; ++i) {
      at += (first[i] + index[i]) * source.strides[i];
      into += index[i] * target.strides[i];
    }
    std::memcpy(write + into * size, read + at * size, static_cast<std::size_t>(target.shape[outer] * size));
    std::size_t i = outer;
    while (i > 0 && ++index[i - 1] == target.shape[i - 1]) index[--i] = 0;
    if (i == 0) return;
  }
}

void write_lengths(buffer& b, std::int64_t keys, std::uint64_t seed) {
  prepare_whole(b, seed);
  auto* const values = reinterpret_cast<std::int32_t*>(b.region->data());
  if (b.where == slot::kv_lens) {
    values[0] = static_cast<std::int32_t>(keys);
  } else {
    values[0] = 0;
    values[1] = static_cast<std::int32_t>(b.where == slot::cu_seqlens_q ? 1 : keys);
  }
}

bool is_length(slot where) {
  return where == slot::cu_seqlens_q || where == slot::kv_lens || where == slot::cu_seqlens_kv ||
         where == slot::cu_segments;
}

}  // namespace

problem lone_row_problem(const case_spec& c, const problem& whole, std::int64_t row) {
  problem alone = whole;
  alone.batch = alone.total_q = alone.max_q_len = 1;
  alone.max_kv_len = alone.total_kv = keys_seen(batch(c).rows()[static_cast<std::size_t>(row)]);
  if (is_vision(c.operation)) alone.total_q = alone.max_q_len = alone.total_kv;
  return alone;
}

std::optional<input_set> make_lone_row(const case_spec& c, const input_set& whole, const problem& alone,
                                       std::int64_t row) {
  const batch rows(c);
  const batch_row& place = rows.rows()[static_cast<std::size_t>(row)];
  const std::int64_t keys = keys_seen(place), first_key = rows.first_key(place.sequence);

  input_set set;
  set.agreed = alone;
  set.sizes = bounds_of(alone);
  set.sizes.p = whole.sizes.p;
  for (const buffer& old : whole.inputs) {
    const slot_rule& rule = rule_of(alone, old.where, direction::in);
    tensor_desc desc = layout_of(rule, alone, set.sizes, c.options.stride);
    if (is_length(old.where)) {
      buffer b = allocate_input(old.where, desc);
      write_lengths(b, keys, c.seed);
      set.inputs.push_back(std::move(b));
      continue;
    }
    std::vector<std::int64_t> first(desc.shape.size(), 0);
    bool copied = false;
    for (const auto& [symbol, at] : {std::pair{"T", row}, {"B", place.sequence}, {"N", first_key}})
      if (const int axis = axis_of(rule, alone, symbol); axis >= 0) {
        first[static_cast<std::size_t>(axis)] = at;
        copied = copied || *symbol != 'N' || at > 0;
      }
    if (!copied || desc.elements() == 0) {
      buffer shared = old;
      shared.desc.shape = desc.shape;
      set.inputs.push_back(std::move(shared));
      continue;
    }
    if (desc.span_elements() * size_bytes(desc.type) > most_copied_bytes) return std::nullopt;
    buffer b = allocate_input(old.where, desc);
    prepare_whole(b, c.seed);
    copy_part(old, first, b);
    set.inputs.push_back(std::move(b));
  }
  for (const buffer& old : whole.outputs)
    set.outputs.push_back(allocate_output(
        old.where, layout_of(rule_of(alone, old.where, direction::out), alone, set.sizes, c.options.stride)));
  set.inputs_checksum = checksum_inputs(set);
  return set;
}

}  // namespace msabench

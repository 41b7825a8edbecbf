// SPDX-License-Identifier: Apache-2.0
#include "inputs/changed_contents.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>

#include "core/operator_table.h"

namespace msabench {

namespace {

constexpr std::int64_t most_moved_bytes = std::int64_t{32} << 20;

std::byte* first_byte(const buffer& b) { return b.region->data() + b.offset; }

std::size_t span_bytes(const buffer& b) {
  return static_cast<std::size_t>(b.desc.span_elements() * size_bytes(b.desc.type));
}

std::span<std::int32_t> ints(const buffer& b) {
  return {reinterpret_cast<std::int32_t*>(first_byte(b)), static_cast<std::size_t>(b.desc.span_elements())};
}

// Index i of `axis` becomes index to[i]; indices behind `to` stay. `from` holds the elements as they were.
void move_along(const buffer& b, int axis, std::span<const std::int64_t> to, std::span<const std::byte> from) {
  const auto& [type, shape, strides] = b.desc;
  const auto size = static_cast<std::size_t>(size_bytes(type));
  const auto moved = static_cast<std::size_t>(axis);
  // Behind that axis what is packed moves as one.
  std::size_t outer = shape.size();
  std::int64_t packed = 1;
  while (outer > moved + 1 && strides[outer - 1] == packed) packed *= shape[--outer];
  std::vector<std::int64_t> index(outer, 0);
  for (;;) {
    std::int64_t old_place = 0, place = 0;
    for (std::size_t i = 0; i < outer; ++i) {
      const bool moves = i == moved && index[i] < std::ssize(to);
      old_place += index[i] * strides[i];
      place += (moves ? to[static_cast<std::size_t>(index[i])] : index[i]) * strides[i];
    }
    std::memcpy(first_byte(b) + static_cast<std::size_t>(place) * size,
                from.data() + static_cast<std::size_t>(old_place) * size, static_cast<std::size_t>(packed) * size);
    std::size_t i = outer;
    while (i > 0 && ++index[i - 1] == shape[i - 1]) index[--i] = 0;
    if (i == 0) return;
  }
}

// Where item i of the runs that end at ends[1], ends[2], ... is when the runs stand in the opposite order.
std::vector<std::int64_t> reversed_runs(std::span<const std::int32_t> ends) {
  std::vector<std::int64_t> to;
  const std::int64_t all = ends.back();
  for (std::size_t run = 0; run + 1 < ends.size(); ++run)
    for (std::int64_t i = ends[run]; i < ends[run + 1]; ++i) to.push_back(all - ends[run + 1] + (i - ends[run]));
  return to;
}

// Cumulated lengths, each from its end.
void reverse_ends(std::span<std::int32_t> ends) {
  const std::vector<std::int32_t> old(ends.begin(), ends.end());
  for (std::size_t i = 0; i < ends.size(); ++i) ends[i] = old.back() - old[old.size() - 1 - i];
}

bool has_unreadable(const buffer& b) {
  return std::ranges::any_of(b.contents, [](const extent& e) { return e.holds == extent::kind::unmapped; });
}

}  // namespace

const char* breach_of(duty d) {
  switch (d) {
    case duty::lengths_ascend:
      return "lengths that decrease";
    case duty::pages_exist:
      return "page ids out of range";
    case duty::blocks_exist:
      return "block ids out of range";
    case duty::queries_are_keys:
      return "more queries than keys";
  }
  return "";
}

buffer* changed_contents::changing(slot where) {
  const auto found = std::ranges::find(set_.inputs, where, &buffer::where);
  if (found == set_.inputs.end() || !found->region || found->desc.elements() == 0) return nullptr;
  if (std::ranges::none_of(before_, [&](const auto& kept) { return kept.first == &*found; })) {
    const std::byte* first = first_byte(*found);
    before_.emplace_back(&*found, std::vector<std::byte>(first, first + span_bytes(*found)));
    found->generated = {};
  }
  return &*found;
}

void changed_contents::restore() {
  for (const auto& [b, bytes] : before_) std::memcpy(first_byte(*b), bytes.data(), bytes.size());
  before_.clear();
  set_.sizes.t = rows_;
  set_.inputs_checksum = checksum_;
}

std::int64_t changed_contents::shorten() {
  const buffer *queries = changing(slot::cu_seqlens_q), *keys = changing(slot::kv_lens);
  if (queries == nullptr || keys == nullptr) return rows_;
  const auto ends = ints(*queries), lengths = ints(*keys);
  const std::int32_t first_rows = ends[1];
  const std::int32_t left = lengths.size() > 1 ? first_rows : first_rows / 2;
  lengths[0] -= first_rows - left;
  std::fill(lengths.begin() + 1, lengths.end(), 0);
  std::fill(ends.begin() + 1, ends.end(), left);
  if (const buffer* packed = changing(slot::cu_seqlens_kv)) {
    const auto key_ends = ints(*packed);
    std::fill(key_ends.begin() + 1, key_ends.end(), lengths[0]);
  }
  set_.sizes.t = left;
  changed();
  return left;
}

void changed_contents::changed() {
  set_.inputs_checksum = checksum_inputs(set_, checksum_, [&](const buffer& b) {
    return std::ranges::any_of(before_, [&](const auto& kept) { return kept.first == &b; });
  });
}

std::vector<changed_contents::move> changed_contents::moves_of_reverse() const {
  const buffer *queries = set_.find(slot::cu_seqlens_q), *keys = set_.find(slot::kv_lens);
  if (queries == nullptr || keys == nullptr || set_.sizes.b < 2) return {};
  const auto rows = reversed_runs(ints(*queries));
  std::vector<std::int64_t> packed_keys, sequences;
  for (std::int64_t b = set_.sizes.b; b-- > 0;) sequences.push_back(b);
  if (const buffer* packed = set_.find(slot::cu_seqlens_kv)) packed_keys = reversed_runs(ints(*packed));

  std::vector<move> moves;
  std::int64_t bytes = 0;
  for (const slot_rule& rule : slots_of(set_.agreed.operation)) {
    if (rule.dir != direction::in) continue;
    const buffer* b = set_.find(rule.where);
    if (b == nullptr || b->dir != direction::in || !b->region || b->desc.elements() == 0) continue;
    for (const auto& [symbol, to] : {std::pair{"T", &rows}, {"N", &packed_keys}, {"B", &sequences}}) {
      const int axis = axis_of(rule, set_.agreed, symbol);
      // One scale for a whole tensor counts nothing.
      if (axis < 0 || b->desc.shape[static_cast<std::size_t>(axis)] < std::ssize(*to)) continue;
      if (*symbol == 'N' && has_unreadable(*b)) return {};
      bytes += static_cast<std::int64_t>(span_bytes(*b));
      moves.push_back({rule.where, axis, *to});
    }
  }
  if (bytes > most_moved_bytes) return {};
  return moves;
}

std::vector<slot> changed_contents::changing_slots() const {
  std::vector<slot> all = {slot::cu_seqlens_q, slot::kv_lens, slot::cu_seqlens_kv};
  for (const move& m : moves_of_reverse()) all.push_back(m.where);
  return all;
}

std::vector<std::int64_t> changed_contents::reverse() {
  const auto moves = moves_of_reverse();
  if (moves.empty()) return {};
  const auto rows = reversed_runs(ints(*set_.find(slot::cu_seqlens_q)));
  for (const move& m : moves) {
    const buffer* b = changing(m.where);
    const auto kept = std::ranges::find(before_, b, [](const auto& entry) { return entry.first; });
    move_along(*b, m.axis, m.to, kept->second);
  }
  for (const slot where : {slot::cu_seqlens_q, slot::cu_seqlens_kv})
    if (const buffer* b = changing(where)) reverse_ends(ints(*b));
  changed();
  return rows;
}

bool changed_contents::breach(duty d) {
  constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max();
  bool breached = false;
  if (d == duty::lengths_ascend && set_.sizes.b > 1) {
    // The sum stays, so that T does.
    if (const buffer* b = changing(slot::cu_seqlens_q)) {
      const auto ends = ints(*b);
      for (std::size_t i = 1; i + 1 < ends.size(); ++i) ends[i] = i % 2 == 1 ? ends.back() + 1 : 0;
      breached = true;
    }
  } else if (d == duty::pages_exist) {
    // The first page behind the pool and the one before it meet the guards, the others nothing at all.
    const std::int32_t wrong[] = {static_cast<std::int32_t>(set_.agreed.pool_pages), -1, most, -most - 1};
    for (const slot where : {slot::block_table, slot::block_table_idx})
      if (const buffer* b = changing(where)) {
        const auto entries = ints(*b);
        for (std::size_t i = 0; i < entries.size(); ++i) entries[i] = wrong[i % std::size(wrong)];
        breached = true;
      }
  } else if (d == duty::blocks_exist) {
    const buffer* b = set_.find(slot::ids);
    if (b == nullptr || b->dir != direction::in || (b = changing(slot::ids)) == nullptr) return false;
    const auto behind = static_cast<std::int32_t>(set_.agreed.max_blocks());
    const std::int32_t wrong[] = {behind, most, -2, -most - 1, behind + 1};
    const auto all = ints(*b);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = wrong[i % std::size(wrong)];
    breached = true;
  } else if (d == duty::queries_are_keys) {
    const buffer *queries = set_.find(slot::cu_seqlens_q), *keys = changing(slot::kv_lens);
    if (queries == nullptr || keys == nullptr || !queries->region) return false;
    const auto ends = ints(*queries), lengths = ints(*keys);
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const std::int32_t rows = ends[i + 1] - ends[i];
      if (rows < 2 || lengths[i] < 2) continue;
      lengths[i] = std::min(lengths[i], rows / 2);
      breached = true;
    }
  }
  if (breached)
    changed();
  else
    restore();
  return breached;
}

}  // namespace msabench

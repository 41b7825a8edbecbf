// SPDX-License-Identifier: Apache-2.0
#include "judge/promises.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "core/operator_table.h"
#include "core/poison.h"
#include "judge/value_scan.h"

namespace msabench::judge {
namespace {

// The part of a tensor in which axis `rows` (below 0: none) is the one index `row`.
struct part {
  const tensor_view* view = nullptr;
  int launch_index = 0;
  int rows = -1;
  std::int64_t row = 0;

  std::int64_t side(std::size_t axis) const { return static_cast<int>(axis) == rows ? 1 : view->desc.shape[axis]; }
  std::vector<std::int64_t> index_in_tensor(std::vector<std::int64_t> index) const {
    if (rows >= 0) index[static_cast<std::size_t>(rows)] += row;
    return index;
  }
  std::int64_t offset(const std::vector<std::int64_t>& index) const {
    std::int64_t at = rows >= 0 ? row * view->desc.strides[static_cast<std::size_t>(rows)] : 0;
    for (std::size_t i = 0; i < index.size(); ++i) at += index[i] * view->desc.strides[i];
    return at;
  }
};

double value_at(const tensor_view& v, std::int64_t offset) {
  if (v.desc.type == i32) return static_cast<const std::int32_t*>(v.data)[offset];
  return load(v.data, v.desc.type, offset);
}

// The first element, in order, in which the common parts of `a` and `b` differ.
std::optional<std::vector<std::int64_t>> first_difference(const part& a, const part& b, std::uint64_t poison_seed) {
  const std::size_t rank = a.view->desc.shape.size();
  std::vector<std::int64_t> shape(rank), index(rank, 0);
  for (std::size_t i = 0; i < rank; ++i) shape[i] = std::min(a.side(i), b.side(i));
  if (std::ranges::find(shape, 0) != shape.end()) return std::nullopt;
  const auto size = static_cast<std::size_t>(size_bytes(a.view->desc.type));
  const auto *left = static_cast<const std::byte*>(a.view->data), *right = static_cast<const std::byte*>(b.view->data);
  for (;;) {
    const std::int64_t l = a.offset(index), r = b.offset(index);
    const bool same =
        std::memcmp(left + static_cast<std::size_t>(l) * size, right + static_cast<std::size_t>(r) * size, size) == 0;
    if (!same &&
        !(is_poison(*a.view, l, a.launch_index, poison_seed) && is_poison(*b.view, r, b.launch_index, poison_seed)))
      return index;
    std::size_t i = rank;
    while (i > 0 && ++index[i - 1] == shape[i - 1]) index[--i] = 0;
    if (i == 0) return std::nullopt;
  }
}

check_result promise_check(std::string id, std::string promise) {
  check_result c;
  c.id = std::move(id);
  c.promise = std::move(promise);
  c.unit = "launches with other bits";
  c.passed = true;
  return c;
}

// Counts the launch if it differs, and shows the first difference of all. `row`: of `usual`; below 0: every row.
void compare(const subject& what, const launch& usual, const launch& other, std::int64_t row, check_result& c,
             const std::string& note) {
  bool differs = false;
  for (const auto& [where, view] : other.outputs) {
    const auto found = usual.outputs.find(where);
    if (found == usual.outputs.end()) continue;
    int rows = -1;
    for (const slot_rule& rule : slots_of(what.agreed.operation))
      if (row >= 0 && rule.where == where && rule.dir == direction::out) rows = axis_of(rule, what.agreed, "T");
    const part a{&found->second, usual.index, rows, std::max<std::int64_t>(0, row)}, b{&view, other.index, rows, 0};
    const auto at = first_difference(a, b, what.definition.seed);
    if (!at) continue;
    if (c.passed) {
      c.worst = {where, a.index_in_tensor(*at), value_scan::axes_of(where), value_at(view, b.offset(*at)),
                 value_at(found->second, a.offset(*at))};
      c.note = note;
    }
    c.passed = false;
    differs = true;
  }
  if (differs) c.value += 1;
}

}  // namespace

check_result check_batch_invariance(const subject& what, const launch& together, std::span<const lone_launch> alone) {
  check_result c = promise_check("K7b", "batch_invariant");
  for (const auto& l : alone)
    compare(
        what, together, l.outputs, l.row, c,
        fmt::format("row {} alone has other bits than among the rows of its call, though profile.batch_invariant is "
                    "promised",
                    l.row));
  return c;
}

check_result check_split_invariance(const subject& what, const launch& usual, std::span<const split_launch> others) {
  check_result c = promise_check("K7s", "split_invariant");
  for (const auto& l : others)
    compare(what, usual, l.outputs, -1, c,
            fmt::format("other bits with splits {} than with splits {}, though profile.split_invariant is promised",
                        l.splits, what.agreed.splits));
  return c;
}

check_result check_graph_safety(std::span<const replayed_launch> replays,
                                std::span<const std::vector<check_result>> checks) {
  check_result c = promise_check("K7g", "graph_safe");
  c.unit = "replays that fail";
  for (std::size_t i = 0; i < replays.size(); ++i) {
    const auto failing = std::ranges::find_if(
        checks[i], [](const check_result& check) { return check.gate && check.observed && !check.passed; });
    if (failing == checks[i].end()) continue;
    if (c.passed) {
      c.worst = failing->worst;
      c.note = fmt::format("one plan replayed with {}: {} fails, though profile.graph_safe is promised",
                           replays[i].contents, failing->id);
    }
    c.passed = false;
    c.value += 1;
  }
  return c;
}

check_result replay_damaged(const std::string& damage) {
  check_result c = promise_check("K7g", "graph_safe");
  c.unit = "replays that fail";
  c.passed = false;
  c.value = 1;
  c.note = fmt::format("one plan replayed with other contents: {}, though profile.graph_safe is promised", damage);
  return c;
}

check_result check_hardening(std::span<const breached_launch> launches) {
  check_result c = promise_check("K7d", "hardened");
  c.unit = "launches with damage";
  for (const auto& l : launches) {
    if (l.damage.empty()) continue;
    c.note += fmt::format("{}{}: {}", c.passed ? "" : "; ", l.breach, l.damage);
    c.passed = false;
    c.value += 1;
  }
  if (!c.passed) c.note += ", though profile.hardened is promised";
  return c;
}

bool shows_order_of_sums(const case_spec& c) {
  return c.family != "block_code" && c.family != "key_code" && c.family != "carry" && c.family != "index_code";
}

}  // namespace msabench::judge

// SPDX-License-Identifier: Apache-2.0
// K7: several launches of one case.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "core/poison.h"
#include "judge/judge.h"

namespace msabench::judge {
namespace {

// How bad a result is next to another of the same id.
double badness(const check_result& c) {
  if (c.limit > 0 && std::isfinite(c.limit)) return std::isnan(c.value) ? HUGE_VAL : c.value / c.limit;
  return c.value;
}

// What failed, then what could not be seen, then what passed.
int rank(const check_result& c) { return !c.observed ? 1 : c.passed ? 2 : 0; }

bool worse(const check_result& a, const check_result& b) {
  return rank(a) != rank(b) ? rank(a) < rank(b) : badness(a) > badness(b);
}

// Equal but for elements that both launches left as they were, which hold the poison of their launch: rows that the profile
// leaves undefined, and outputs that are an implementation's own choice.
bool same_where_written(const launch& a, const launch& b, std::uint64_t poison_seed) {
  for (const auto& [where, left] : a.outputs) {
    const auto found = b.outputs.find(where);
    if (found == b.outputs.end() || found->second.desc != left.desc) return false;
    const tensor_view& right = found->second;
    const std::int64_t size = size_bytes(left.desc.type), count = left.desc.span_elements();
    const auto* l = static_cast<const std::byte*>(left.data);
    const auto* r = static_cast<const std::byte*>(right.data);
    for (std::int64_t i = 0; i < count; ++i)
      if (std::memcmp(l + i * size, r + i * size, static_cast<std::size_t>(size)) != 0 &&
          !(is_poison(left, i, a.index, poison_seed) && is_poison(right, i, b.index, poison_seed)))
        return false;
  }
  return a.outputs.size() == b.outputs.size();
}

// How many different outputs there are.
std::size_t count_different(const subject& what, std::span<const launch> launches) {
  const bool may_leave = what.delivers.empty_row == empty_form::undefined || what.definition.operation == op::vit3d;
  std::vector<const launch*> different;
  for (const auto& l : launches)
    if (std::ranges::none_of(different, [&](const launch* other) {
          return other->outputs_sha256 == l.outputs_sha256 ||
                 (may_leave && same_where_written(*other, l, what.definition.seed));
        }))
      different.push_back(&l);
  return different.size();
}

const check_result* find(const std::vector<check_result>& checks, const std::string& id) {
  const auto at = std::ranges::find(checks, id, &check_result::id);
  return at == checks.end() ? nullptr : &*at;
}

std::string launch_name(const std::vector<std::vector<check_result>>& all, std::size_t i) {
  return fmt::format("launch {} of {}", i + 1, all.size());
}

// "launch 2 of 2 fails K1 where launch 1 of 2 passes"; empty if the launches agree.
std::string disagreement(const std::vector<std::vector<check_result>>& per_launch) {
  for (const auto& c : per_launch.front())
    for (std::size_t i = 1; i < per_launch.size(); ++i) {
      const auto* other = find(per_launch[i], c.id);
      if (!other || !c.observed || !other->observed || other->passed == c.passed) continue;
      const std::size_t fails = c.passed ? i : 0, passes = c.passed ? 0 : i;
      return fmt::format("{} fails {} where {} passes", launch_name(per_launch, fails), c.id,
                         launch_name(per_launch, passes));
    }
  return {};
}

}  // namespace

std::vector<check_result> merge_launches(const subject& what, std::span<const launch> launches,
                                         const std::vector<std::vector<check_result>>& per_launch) {
  if (launches.size() != per_launch.size() || launches.empty())
    throw suite_error("merge_launches needs the checks of every launch, and at least one");

  // Launches need not have the same checks: what one hands back another may leave.
  std::vector<check_result> merged;
  for (std::size_t first = 0; first < per_launch.size(); ++first)
    for (const auto& c : per_launch[first]) {
      if (find(merged, c.id) != nullptr) continue;
      check_result worst = c;
      std::size_t from = first;
      for (std::size_t i = first + 1; i < per_launch.size(); ++i)
        if (const auto* other = find(per_launch[i], c.id); other && worse(*other, worst)) {
          worst = *other;
          from = i;
        }
      if (from > 0 && !worst.passed)
        worst.note = launch_name(per_launch, from) + (worst.note.empty() ? "" : ": " + worst.note);
      merged.push_back(std::move(worst));
    }

  check_result k7;
  k7.id = "K7";
  k7.unit = "other outputs";
  const std::size_t different = count_different(what, launches);
  k7.value = static_cast<double>(different - 1);
  const bool promised = what.delivers.repeatable;
  k7.limit = promised ? 0 : static_cast<double>(launches.size() - 1);
  k7.note = disagreement(per_launch);
  if (launches.size() < 2) {
    k7.observed = false;
    k7.note = "one launch only";
  } else if (!k7.note.empty()) {
    k7.kind = fail_kind::nondeterministic;
  } else if (promised && different > 1) {
    k7.promise = "repeatable";
    k7.note = fmt::format("{} different outputs of {} launches, though profile.repeatable is promised", different,
                          launches.size());
  } else {
    k7.passed = true;
  }
  merged.push_back(std::move(k7));
  return merged;
}

}  // namespace msabench::judge

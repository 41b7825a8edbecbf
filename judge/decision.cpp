// SPDX-License-Identifier: Apache-2.0
// From everything seen to one verdict. Order of precedence (docs/verdicts.md): how the process ended, what was
// declared, damage, the values, how much of that could be seen, and only then a pass.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"
#include "judge/error_size.h"
#include "judge/judge.h"

namespace msabench::judge {
namespace {

// Numbers of msabench_status, fixed for plugin interface 1.
constexpr std::array<std::string_view, 6> status_names = {
    "MSABENCH_OK",           "MSABENCH_UNSUPPORTED", "MSABENCH_INVALID_PROBLEM",
    "MSABENCH_NO_RESOURCES", "MSABENCH_INTERNAL",    "MSABENCH_DEVICE_ERROR"};
constexpr std::int32_t device_error = 5;

constexpr std::size_t most_reason_chars = 600;

std::string status_name(std::int32_t status) {
  const bool known_status = status >= 0 && static_cast<std::size_t>(status) < status_names.size();
  return known_status ? std::string(status_names[static_cast<std::size_t>(status)]) : fmt::format("status {}", status);
}

std::string said(const observation& seen) { return seen.message.empty() ? "(no message)" : seen.message; }

std::string where(const observation& seen) { return seen.entry.empty() ? "the plugin" : seen.entry; }

decision decided(verdict v, fail_kind kind, const std::string& reason) {
  return {v, kind, one_line(reason, most_reason_chars)};
}

std::string number(double x) { return fmt::format("{:.6g}", x); }

// "row 17, head 3, channel 40"
std::string place_of(const worst_element& w) {
  std::string text;
  for (std::size_t i = 0; i < w.index.size(); ++i) {
    if (!text.empty()) text += ", ";
    text += fmt::format("{} {}", i < w.axes.size() ? w.axes[i] : "index", w.index[i]);
  }
  return text;
}

// K1 .. K4, K8a and K8d compare numbers; the others say in words what is wrong.
bool is_numeric_check(const check_result& c) {
  return c.id == "K1" || c.id == "K2" || c.id == "K3" || c.id == "K4a" || c.id == "K4b" || c.id == "K8a" ||
         c.id == "K8d";
}

// One declaration has to satisfy every failing check, or it is none that would have let the case pass.
std::string cure_of(const std::vector<const check_result*>& failing) {
  std::vector<std::string> cures;
  for (const auto* c : failing) {
    if (c->cure.empty()) return "no declared number would have made it pass";
    if (std::ranges::find(cures, c->cure) == cures.end()) cures.push_back(c->cure);
  }
  return fmt::format("would pass with {}", fmt::join(cures, " and "));
}

std::string line_of(const subject& what, const std::vector<const check_result*>& failing) {
  const check_result& c = *failing.front();
  std::string text = fmt::format("{} {}", c.id, name(what.agreed.operation));
  if (c.worst.where) text += fmt::format(" {}", name(*c.worst.where));
  if (const auto place = place_of(c.worst); !place.empty()) text += fmt::format(" at {}", place);
  text += ": ";
  std::vector<std::string> parts;
  if (!c.named.empty()) parts.push_back(c.named);
  if (is_numeric_check(c)) {
    parts.push_back(fmt::format("got {}, want {}", number(c.worst.got), number(c.worst.want)));
    const bool in_expected_sizes = c.id == "K4a" || c.id == "K4b";
    std::string limit = fmt::format("error {}{} exceeds the limit {}", number(c.value),
                                    in_expected_sizes ? " times its expected size" : "", number(c.limit));
    if (!c.terms.empty())
      limit += fmt::format(" (largest term {} {})", c.terms.front().first, number(c.terms.front().second));
    parts.push_back(std::move(limit));
  }
  if (!c.note.empty()) parts.push_back(c.note);
  if (is_numeric_check(c)) parts.push_back(cure_of(failing));
  for (std::size_t i = 0; i < parts.size(); ++i) text += (i > 0 ? "; " : "") + parts[i];
  return text;
}

// Of failing checks the first in this order gives the verdict: damage makes all values meaningless, what was not
// written or changes by itself makes them accidental, and a wrong set explains wrong numbers.
int kind_rank(fail_kind k) {
  switch (k) {
    case fail_kind::out_of_bounds:
      return 0;
    case fail_kind::input_modified:
      return 1;
    case fail_kind::contract:
      return 2;
    case fail_kind::nondeterministic:
      return 3;
    case fail_kind::selection:
      return 4;
    case fail_kind::nonfinite:
      return 5;
    case fail_kind::numeric:
      return 6;
    case fail_kind::none:
      return 7;
  }
  return 7;
}

// A coded case knows the key or block, so its line says more than those of K1 and K2.
bool before(const check_result* a, const check_result* b) {
  if (kind_rank(a->kind) != kind_rank(b->kind)) return kind_rank(a->kind) < kind_rank(b->kind);
  return a->named.empty() < b->named.empty();
}

decision decide_failure(const subject& what, std::vector<const check_result*> failing) {
  std::ranges::stable_sort(failing, before);
  const auto& first = *failing.front();
  std::string reason = line_of(what, failing);
  std::string others;
  for (std::size_t i = 1; i < failing.size(); ++i)
    if (failing[i]->id != first.id && others.find(failing[i]->id) == std::string::npos)
      others += (others.empty() ? "" : ", ") + failing[i]->id;
  if (!others.empty())
    reason += fmt::format("; {} {} too", others, others.find(',') == std::string::npos ? "fails" : "fail");
  // Results that are right but not as promised; whatever else fails is graver.
  return decided(first.promise.empty() ? verdict::fail : verdict::broken_promise, first.kind, reason);
}

// MSABENCH_UNSUPPORTED is a declaration before plan, and at run only of strides; afterwards a promise is broken.
decision decide_unsupported(const subject& what, const observation& seen) {
  if (seen.entry.empty() || seen.entry == "get" || seen.entry == "query")
    return decided(verdict::unsupported, fail_kind::none, said(seen));
  if (seen.entry == "run" && what.definition.options.stride)
    return decided(verdict::unsupported, fail_kind::none, said(seen));
  return decided(
      verdict::broken_promise, fail_kind::none,
      fmt::format("{} answered MSABENCH_UNSUPPORTED to a problem that query accepted: {}", seen.entry, said(seen)));
}

decision decide_status(const observation& seen) {
  const std::string reason = fmt::format("{} answered {}: {}", where(seen), status_name(seen.status), said(seen));
  if (seen.status == device_error) return decided(verdict::device_lost, fail_kind::none, reason);
  // The problem is sound and fits the machine, so any other error is a fault.
  return decided(verdict::fail, fail_kind::contract, reason);
}

const check_result* memory_failure(const std::vector<check_result>& checks) {
  const auto at = std::ranges::find_if(checks, [](const auto& c) { return c.id == "R3" && c.gate && !c.passed; });
  return at == checks.end() ? nullptr : &*at;
}

std::vector<const check_result*> failing_of(const std::vector<check_result>& checks) {
  std::vector<const check_result*> failing;
  for (const auto& c : checks)
    if (c.gate && c.observed && !c.passed) failing.push_back(&c);
  return failing;
}

decision decide_end(const subject& what, const observation& seen, const std::vector<check_result>& checks) {
  // A process that dies under the memory limit dies of rule R3.
  if (const auto* memory = memory_failure(checks)) return decide_failure(what, {memory});
  const std::string reason = fmt::format("{}: {}", where(seen), said(seen));
  switch (seen.result) {
    case outcome::crashed:
      return decided(verdict::crash, fail_kind::none, reason);
    case outcome::timed_out:
      return decided(verdict::timeout, fail_kind::none, reason);
    case outcome::device_lost:
      return decided(verdict::device_lost, fail_kind::none, reason);
    case outcome::nonsense:
      return decided(verdict::broken_promise, fail_kind::none, reason);
    default:
      break;
  }
  // A refusal or an error is no excuse for damage.
  const decision refusal = seen.result == outcome::unsupported ? decide_unsupported(what, seen) : decide_status(seen);
  const auto failing = failing_of(checks);
  return failing.empty() || refusal.decided == verdict::device_lost ? refusal : decide_failure(what, failing);
}

std::string insensitive_reason(const detectability& sees) {
  return fmt::format("the case sees {} by {} of a limit only{}, and {} is needed: nothing is verified",
                     sees.weakest_fault, number(sees.value), sees.by_check.empty() ? "" : " (" + sees.by_check + ")",
                     number(detectability::floor));
}

const check_result* unobserved_gate(const std::vector<check_result>& checks) {
  // Without lse the codes stand in for K2, and the report says so (docs/contract.md section 10).
  const auto at = std::ranges::find_if(checks, [](const auto& c) { return c.gate && !c.observed && c.id != "K2"; });
  return at == checks.end() ? nullptr : &*at;
}

bool ranks_blocks(op o) { return o == op::select || o == op::index || o == op::msa; }

}  // namespace

decision decide(const subject& what, const observation& seen, const std::vector<check_result>& checks,
                const detectability& sees) {
  if (seen.result != outcome::completed) return decide_end(what, seen, checks);

  if (const auto broken = broken_declarations(what.agreed, what.declared, what.delivers); !broken.empty())
    return decided(verdict::broken_promise, fail_kind::none, broken.front());
  if (const auto failing = failing_of(checks); !failing.empty()) return decide_failure(what, failing);
  if (checks.empty())
    return decided(verdict::suite_error, fail_kind::none, "the case completed but nothing was checked");
  if (const auto* unseen = unobserved_gate(checks))
    return decided(verdict::insensitive, fail_kind::none, fmt::format("{} not observed: {}", unseen->id, unseen->note));
  // A case without targets (nothing to compute) asks for no sight.
  if (!what.targets.empty() && (!sees.judged || !(sees.value >= detectability::floor)))
    return decided(verdict::insensitive, fail_kind::none,
                   sees.judged ? insensitive_reason(sees) : "its detectability was not measured");
  if (what.delivers.rank_step > 0 && ranks_blocks(what.agreed.operation))
    return decided(verdict::quality_warning, fail_kind::none,
                   fmt::format("ranks on scores quantised to {} of the row's range", number(what.delivers.rank_step)));
  // Within the limit, but larger than honest rounding of what is declared makes errors.
  const auto large = std::ranges::find_if(
      checks, [](const auto& c) { return c.id == "K4b" && c.observed && c.value > usual_group_size; });
  if (large != checks.end())
    return decided(verdict::quality_warning, fail_kind::none,
                   fmt::format("errors are {} times their expected size, and honest ones stay below {} ({})",
                               number(large->value), number(usual_group_size), large->note));
  return decided(verdict::pass, fail_kind::none, "");
}

}  // namespace msabench::judge

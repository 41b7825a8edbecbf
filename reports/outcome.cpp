// SPDX-License-Identifier: Apache-2.0
#include "reports/outcome.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace msabench {
namespace {

template <class Key, class Value>
Value& entry_of(std::vector<std::pair<Key, Value>>& list, std::string_view key) {
  const auto at = std::find_if(list.begin(), list.end(), [&](const auto& entry) { return entry.first == key; });
  return at != list.end() ? at->second : list.emplace_back(Key(key), Value{}).second;
}

std::int64_t count_group(const run_record& run, outcome_group group) {
  return std::count_if(run.cases.begin(), run.cases.end(),
                       [&](const case_record& c) { return group_of(c.decided) == group; });
}

std::int64_t count_verdict(const run_record& run, verdict v) {
  return std::count_if(run.cases.begin(), run.cases.end(), [&](const case_record& c) { return c.decided == v; });
}

}  // namespace

outcome_group group_of(verdict v) {
  switch (v) {
    case verdict::pass:
    case verdict::quality_warning:
      return outcome_group::passed;
    case verdict::fail:
    case verdict::broken_promise:
    case verdict::timeout:
    case verdict::crash:
    case verdict::device_lost:
    case verdict::xpass:
      return outcome_group::failed;
    case verdict::unsupported:
    case verdict::waived:
      return outcome_group::set_aside;
    case verdict::insensitive:
    case verdict::suite_error:
      break;
  }
  return outcome_group::unverified;
}

std::string_view meaning_of(verdict v) {
  switch (v) {
    case verdict::pass:
      return "every gating check held";
    case verdict::quality_warning:
      return "passed, with larger errors than its declaration leads one to expect";
    case verdict::fail:
      return "a gating check was violated";
    case verdict::unsupported:
      return "the implementation declares that it does not do this; not verified";
    case verdict::broken_promise:
      return "it declared or promised what it does not keep";
    case verdict::insensitive:
      return "the case could not see its target faults; not verified";
    case verdict::timeout:
      return "it did not finish within its time limit";
    case verdict::crash:
      return "it ended the process: signal, exit, exception or memory";
    case verdict::device_lost:
      return "the device was lost while it ran";
    case verdict::waived:
      return "a known failure that the user set aside; not verified";
    case verdict::xpass:
      return "a waived case that passes: remove its waiver";
    case verdict::suite_error:
      return "the suite itself is at fault; not verified";
  }
  return "";
}

std::string_view headline_of(const run_record& run) {
  switch (exit_code_of(run)) {
    case exit_code::ok:
      return "PASSED";
    case exit_code::failed:
      return "FAILED";
    case exit_code::partial:
      return "INCOMPLETE";
    case exit_code::nothing_verified:
      return "NOTHING VERIFIED";
    default:
      return "SUITE ERROR";
  }
}

std::string count_of_cases(std::size_t count) { return fmt::format("{} case{}", count, count == 1 ? "" : "s"); }

std::string explanation_of_parts(const run_record& run) {
  std::string text;
  const auto tell = [&](part_state wanted, std::string_view what) {
    std::size_t n = 0;
    std::string titles;
    for (const auto& part : run.parts) {
      if (part.state != wanted) continue;
      if (++n <= 3) titles += (n == 1 ? "" : ", ") + one_line(title_of(part), 80);
    }
    if (n > 0)
      text += fmt::format(" {} of {} other parts {}: {}{}.", n, run.parts.size(), what, titles, n > 3 ? ", ..." : "");
  };
  tell(part_state::failed, "failed");
  tell(part_state::incomplete, "incomplete");
  tell(part_state::not_run, "not run");
  return text;
}

std::string explanation_of(const run_record& run) {
  const auto total = static_cast<std::int64_t>(run.cases.size());
  const std::string interrupted = run.partial ? " The run was interrupted: cases are missing." : "";
  const std::string withdrawn =
      run.withdrawn.empty() ? "" : fmt::format(" Not run, since withdrawn: {}.", count_of_cases(run.withdrawn.size()));
  if (total == 0)
    return (run.partial ? "The run was interrupted before its first case ended." : "No case was selected.") +
           withdrawn + explanation_of_parts(run);
  std::string text;
  if (const auto n = count_verdict(run, verdict::suite_error))
    text += fmt::format("The suite failed in {} of {} cases, so no result of this run is trustworthy. ", n, total);
  if (const auto n = count_group(run, outcome_group::failed)) text += fmt::format("{} of {} cases failed. ", n, total);
  text += fmt::format("{} of {} cases verified and passed", count_group(run, outcome_group::passed), total);
  if (const auto n = count_verdict(run, verdict::unsupported)) text += fmt::format(", {} unsupported", n);
  if (const auto n = count_verdict(run, verdict::waived)) text += fmt::format(", {} waived", n);
  if (const auto n = count_verdict(run, verdict::insensitive)) text += fmt::format(", {} too insensitive to verify", n);
  return text + "." + withdrawn + interrupted + explanation_of_parts(run);
}

std::vector<std::pair<verdict, std::int64_t>> counts_of(const std::vector<case_record>& cases) {
  std::vector<std::pair<verdict, std::int64_t>> counts;
  for (int i = 0; i <= static_cast<int>(verdict::suite_error); ++i) {
    const auto v = static_cast<verdict>(i);
    const auto n = std::count_if(cases.begin(), cases.end(), [&](const case_record& c) { return c.decided == v; });
    if (n > 0) counts.emplace_back(v, n);
  }
  return counts;
}

std::string operator_of(const case_record& c) { return c.name.substr(0, c.name.find('/')); }

std::string operator_and_shape_of(const case_record& c) {
  const auto first = c.name.find('/');
  return first == std::string::npos ? c.name : c.name.substr(0, c.name.find('/', first + 1));
}

std::vector<std::pair<std::string, std::vector<const case_record*>>> by_operator(const run_record& run) {
  std::vector<std::pair<std::string, std::vector<const case_record*>>> groups;
  for (const auto& c : run.cases) entry_of(groups, operator_of(c)).push_back(&c);
  return groups;
}

void count_text(counted_texts& texts, std::string_view text) { ++entry_of(texts, text); }

std::vector<std::string> unobserved_of(const case_record& c) {
  std::vector<std::string> out;
  for (const auto& text : c.unobserved) out.push_back(one_line(text, 300));
  for (const auto& check : c.checks) {
    if (check.observed) continue;
    const bool named = std::any_of(c.unobserved.begin(), c.unobserved.end(),
                                   [&](const std::string& text) { return text.starts_with(check.id); });
    if (!named)
      out.push_back(check.note.empty() ? check.id : fmt::format("{}: {}", check.id, one_line(check.note, 300)));
  }
  return out;
}

std::string format_number(double x) { return fmt::format("{:.4g}", x); }

std::string times_limit(const check_result& c) {
  if (!std::isfinite(c.value) || !std::isfinite(c.limit) || c.limit <= 0) return {};
  const double ratio = c.value / c.limit;
  return ratio > 1000 ? "> 1000 x" : fmt::format("{:.3g} x", ratio);
}

std::string place_of(const worst_element& w) {
  std::string index;
  for (std::size_t i = 0; i < w.index.size(); ++i) {
    const std::string axis = i < w.axes.size() ? w.axes[i] + " " : "";
    index += fmt::format("{}{}{}", i ? ", " : "", axis, w.index[i]);
  }
  const std::string tensor = w.where ? std::string(name(*w.where)) : "";
  if (index.empty()) return tensor;
  return tensor.empty() ? index : fmt::format("{}[{}]", tensor, index);
}

std::string comparison_of(const check_result& c) {
  // A NaN compares as false: it is above every limit.
  const char* relation = c.value <= c.limit ? "<=" : ">";
  const std::string unit = c.unit.empty() ? "" : " " + c.unit;
  const std::string ratio = times_limit(c);
  return fmt::format("{}{} {} limit {}{}", format_number(c.value), unit, relation, format_number(c.limit),
                     ratio.empty() ? "" : fmt::format(" ({})", ratio));
}

std::vector<std::string> lines_of(const check_result& c) {
  std::vector<std::string> lines;
  const std::string place = place_of(c.worst);
  lines.push_back(comparison_of(c) + (place.empty() ? "" : " at " + place));
  if (!place.empty())
    lines.push_back(fmt::format("got {}, want {}", format_number(c.worst.got), format_number(c.worst.want)));
  if (!c.terms.empty())
    lines.push_back(fmt::format("largest term of the limit: {} {}", one_line(c.terms.front().first, 80),
                                format_number(c.terms.front().second)));
  if (!c.named.empty()) lines.push_back("named by the code: " + one_line(c.named, 300));
  if (!c.note.empty()) lines.push_back("seen: " + one_line(c.note, 600));
  if (!c.cure.empty()) lines.push_back("would pass with: " + one_line(c.cure, 300));
  return lines;
}

std::string verdict_with_kind(const case_record& c) {
  std::string text(name(c.decided));
  if (c.kind != fail_kind::none) text += fmt::format(" ({})", name(c.kind));
  return text;
}

}  // namespace msabench

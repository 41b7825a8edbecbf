// SPDX-License-Identifier: Apache-2.0
#include "reports/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/units.h"
#include "reports/outcome.h"

namespace msabench {
namespace {

constexpr std::size_t line_columns = 100;
constexpr std::size_t verdict_columns = 15;  // "quality-warning"
constexpr std::size_t name_columns = 58;
constexpr std::size_t max_sentence_chars = 2000;

// Columns that a terminal uses for UTF-8 text without wide or combining characters.
std::size_t columns_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string padded(std::string_view text, std::size_t columns) {
  const auto used = columns_of(text);
  return std::string(text) + std::string(used < columns ? columns - used : 0, ' ');
}

std::string padded_left(std::string_view text, std::size_t columns) {
  const auto used = columns_of(text);
  return std::string(used < columns ? columns - used : 0, ' ') + std::string(text);
}

constexpr const char* green = "\x1b[32m";
constexpr const char* red = "\x1b[31m";
constexpr const char* yellow = "\x1b[33m";
constexpr const char* plain = "";

std::string in_colour(std::string_view text, const char* code, bool colour) {
  return colour && *code ? fmt::format("{}{}\x1b[0m", code, text) : std::string(text);
}

const char* colour_of(verdict v) {
  if (v == verdict::quality_warning) return yellow;
  switch (group_of(v)) {
    case outcome_group::passed:
      return green;
    case outcome_group::failed:
      return red;
    case outcome_group::unverified:
      return yellow;
    case outcome_group::set_aside:
      break;
  }
  return plain;
}

// One sentence on lines of at most line_columns, broken at spaces; the first begins with `lead`, the others are
// indented as far. A word longer than a line stays whole.
std::string wrapped(std::string_view lead, std::string_view text) {
  const std::string sentence = one_line(text, max_sentence_chars);
  const std::string indent(columns_of(lead), ' ');
  std::string out, line(lead);
  bool bare = true;
  std::size_t at = 0;
  while (at < sentence.size()) {
    const auto end = std::min(sentence.find(' ', at), sentence.size());
    const auto word = std::string_view(sentence).substr(at, end - at);
    if (!bare && columns_of(line) + 1 + columns_of(word) > line_columns) {
      out += line + "\n";
      line = indent;
      bare = true;
    }
    line += bare ? "" : " ";
    line += word;
    bare = false;
    at = end + 1;
  }
  return out + line + "\n";
}

// The gating check nearest to its limit, or beyond it: "K1 0.43 x". A violated one goes first, even where its value has
// no ratio; empty if there is nothing to say.
std::string nearest_check(const case_record& c) {
  const auto rank = [](const check_result& check) {
    const bool ratio = !times_limit(check).empty();
    return std::pair(!check.passed, ratio ? check.value / check.limit : 0.0);
  };
  const check_result* nearest = nullptr;
  for (const auto& check : c.checks) {
    if (!check.gate || !check.observed || (check.passed && times_limit(check).empty())) continue;
    if (!nearest || rank(check) > rank(*nearest)) nearest = &check;
  }
  if (!nearest) return {};
  const std::string ratio = times_limit(*nearest);
  return fmt::format("{} {}", one_line(nearest->id, 20), ratio.empty() ? "violated" : ratio);
}

std::string checks_detail(const case_record& c, bool colour) {
  std::string out;
  for (const auto& check : c.checks) {
    const bool worth_telling = check.gate || c.decided == verdict::quality_warning;
    if (check.passed || !check.observed || !worth_telling) continue;
    const auto lines = lines_of(check);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const std::string lead = i ? "      " : fmt::format("  {:<3} ", one_line(check.id, 20));
      const std::string text = wrapped(lead, lines[i]);
      out += i ? text
               : in_colour(text.substr(0, lead.size()), check.gate ? red : yellow, colour) + text.substr(lead.size());
    }
  }
  return out;
}

std::string captured_detail(const case_record& c) {
  if (c.captured_output.empty()) return {};
  constexpr std::size_t shown_lines = 12;
  std::vector<std::string> lines;
  const std::string printable = printable_lines(c.captured_output);
  for (std::size_t at = 0; at < printable.size();) {
    const auto end = std::min(printable.find('\n', at), printable.size());
    lines.push_back(one_line(std::string_view(printable).substr(at, end - at), line_columns - 4));
    at = end + 1;
  }
  const std::size_t first = lines.size() > shown_lines ? lines.size() - shown_lines : 0;
  std::string out =
      first ? fmt::format("  it printed (last {} of {} lines; all are in the report):\n", shown_lines, lines.size())
            : "  it printed:\n";
  for (std::size_t i = first; i < lines.size(); ++i) out += lines[i].empty() ? "\n" : "    " + lines[i] + "\n";
  return out;
}

std::string rule() { return std::string(line_columns, '-') + "\n"; }

std::string operator_table(const run_record& run) {
  const auto line = [](const std::vector<std::string>& cells) {
    std::string out = padded(cells[0], 18);
    for (std::size_t i = 1; i < cells.size(); ++i) out += " " + padded_left(cells[i], 12);
    return out + "\n";
  };
  const auto row = [&](const std::string& title, const std::vector<const case_record*>& cases) {
    std::int64_t counts[4] = {};
    double seconds = 0;
    for (const auto* c : cases) {
      ++counts[static_cast<int>(group_of(c->decided))];
      seconds += c->elapsed_s;
    }
    return line({title, std::to_string(cases.size()), std::to_string(counts[0]), std::to_string(counts[1]),
                 std::to_string(counts[2]), std::to_string(counts[3]), format_duration_s(seconds)});
  };
  std::string out = line({"operator", "cases", "passed", "failed", "not verified", "set aside", "time"});
  std::vector<const case_record*> all;
  const auto groups = by_operator(run);
  for (const auto& [operation, cases] : groups) {
    out += row(one_line(operation, 18), cases);
    all.insert(all.end(), cases.begin(), cases.end());
  }
  if (groups.size() > 1) out += row("all", all);
  return out;
}

std::string verdict_counts(const run_record& run, bool colour) {
  std::string out;
  for (const auto& [v, n] : counts_of(run.cases))
    out += fmt::format("{} {:>6}  {}\n", in_colour(padded(name(v), verdict_columns), colour_of(v), colour), n,
                       meaning_of(v));
  return out;
}

std::string bad_cases(const run_record& run, bool colour) {
  constexpr std::size_t shown = 20;
  std::size_t found = 0;
  std::string out;
  for (const auto& c : run.cases) {
    const auto group = group_of(c.decided);
    if (group != outcome_group::failed && group != outcome_group::unverified) continue;
    if (run.fuzz && c.decided == verdict::insensitive)
      continue;  // they are counted; there is nothing to be done about one
    if (++found > shown) continue;
    out += fmt::format("{}  {}\n", in_colour(padded(name(c.decided), verdict_columns), colour_of(c.decided), colour),
                       c.name);
  }
  if (found > shown) out += fmt::format("... and {} more, all in the report\n", found - shown);
  return out;
}

std::string unobserved_summary(const run_record& run) {
  counted_texts texts;
  for (const auto& c : run.cases)
    for (const auto& text : unobserved_of(c)) count_text(texts, text);
  std::string out;
  for (const auto& [text, n] : texts)
    out += wrapped("not observed: ", fmt::format("{} ({} case{})", text, n, n == 1 ? "" : "s"));
  return out;
}

}  // namespace

std::string text_case_line(const case_record& c, bool colour) {
  const std::string shown_name = one_line(c.name, max_sentence_chars);
  std::string tail = padded_left(format_duration_s(c.elapsed_s), 9);
  if (const auto nearest = nearest_check(c); !nearest.empty()) tail += "  " + nearest;
  std::string rest = padded(shown_name, name_columns) + " " + tail;
  // A long name keeps its place and pushes the rest out only as far as the line goes.
  if (verdict_columns + 2 + columns_of(rest) > line_columns)
    rest = fmt::format("{}  {}", shown_name, tail.substr(tail.find_first_not_of(' ')));
  if (verdict_columns + 2 + columns_of(rest) > line_columns) rest = shown_name;
  return in_colour(padded(name(c.decided), verdict_columns), colour_of(c.decided), colour) + "  " + rest + "\n";
}

std::string text_case_detail(const case_record& c, bool colour) {
  if (c.decided == verdict::pass) return {};
  const std::string reason = c.reason.empty() ? std::string(meaning_of(c.decided)) : c.reason;
  std::string out = wrapped("  ", verdict_with_kind(c) + ": " + reason);
  if (c.decided == verdict::unsupported) return out;
  out += checks_detail(c, colour);
  if (c.decided == verdict::insensitive)
    out += wrapped("  ",
                   fmt::format("weakest target fault: {} at {} x its limit by {}; {} x is needed", c.sees.weakest_fault,
                               format_number(c.sees.value), c.sees.by_check, format_number(detectability::floor)));
  for (const auto& text : unobserved_of(c)) out += wrapped("  not observed: ", text);
  for (const auto& text : c.remarks) out += wrapped("  remark: ", text);
  out += captured_detail(c);
  if (!c.repro.empty()) out += "  reproduce: " + one_line(c.repro, max_sentence_chars) + "\n";
  return out;
}

std::string text_case_checks(const case_record& c, bool colour) {
  constexpr std::size_t id_columns = 6;
  const auto line = [](std::string_view id, std::string_view result, std::string_view value, std::string_view limit,
                       std::string_view ratio, std::string_view place) {
    const std::string text = padded(id, id_columns) + padded(result, 14) + padded_left(value, 12) +
                             padded_left(limit, 12) + padded_left(ratio, 11) + "  " + std::string(place);
    return text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  };
  std::string out = line("check", "result", "value", "limit", "of limit", "worst element");
  for (const auto& check : c.checks) {
    const char* result = !check.observed ? "not observed"
                         : check.passed  ? "held"
                         : check.gate    ? "VIOLATED"
                                         : "exceeded";
    const char* code = !check.observed ? yellow : check.passed ? green : check.gate ? red : yellow;
    const bool numbers = check.observed;
    const auto text = line(one_line(check.id, 4), result, numbers ? format_number(check.value) : "",
                           numbers ? format_number(check.limit) : "", numbers ? times_limit(check) : "",
                           one_line(numbers ? place_of(check.worst) : check.note, line_columns - 57));
    out += text.substr(0, id_columns) + in_colour(result, code, colour) +
           text.substr(id_columns + std::string_view(result).size());
  }
  if (c.checks.empty()) out += "no check ran\n";
  if (c.sees.judged)
    out += wrapped(
        "", fmt::format("detectability {} x (weakest fault {} by {}; {} x is needed)", format_number(c.sees.value),
                        c.sees.weakest_fault, c.sees.by_check, format_number(detectability::floor)));
  out += fmt::format("rows checked: {} of {}\n", c.rows_checked, c.rows_total);
  return out;
}

std::string text_summary(const run_record& run, bool colour) {
  std::string out = rule();
  if (!run.cases.empty()) {
    out += operator_table(run) + "\n" + verdict_counts(run, colour);
    if (const auto bad = bad_cases(run, colour); !bad.empty()) out += "\n" + bad;
    if (const auto unseen = unobserved_summary(run); !unseen.empty()) out += "\n" + unseen;
    out += "\n";
  }
  for (const auto& c : run.withdrawn) out += wrapped("withdrawn, not run: ", c.name + ": " + c.reason);
  for (const auto& p : run.parts)
    out += wrapped(fmt::format("{:<8} ", name(p.state)), title_of(p) + (p.detail.empty() ? "" : ": " + p.detail));
  if (run.partial) out += in_colour("PARTIAL: the run was interrupted; cases are missing.", yellow, colour) + "\n";
  const int code = exit_code_of(run);
  const char* tint = code == exit_code::ok                                   ? green
                     : code == exit_code::failed || code == exit_code::suite ? red
                                                                             : yellow;
  const std::string end = wrapped("", fmt::format("{}: {} Exit code {}.", headline_of(run), explanation_of(run), code));
  const auto headline = headline_of(run);
  return out + in_colour(headline, tint, colour) + end.substr(headline.size());
}

}  // namespace msabench

// SPDX-License-Identifier: Apache-2.0
#include "reports/markdown.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/files.h"
#include "core/units.h"
#include "reports/outcome.h"

namespace msabench {
namespace {

constexpr std::size_t max_cell_chars = 600;

// Cells are Markdown already.
std::string row(std::initializer_list<std::string> cells) {
  std::string line = "|";
  for (const auto& cell : cells) line += " " + cell + " |";
  return line + "\n";
}

std::string head(std::initializer_list<std::string> titles) {
  std::string rule = "|";
  for (const auto& title : titles) rule += title.starts_with('#') ? "---:|" : "---|";
  return row(titles) + rule + "\n";
}

std::int64_t count_of(const std::vector<const case_record*>& cases, outcome_group group) {
  return std::count_if(cases.begin(), cases.end(), [&](const case_record* c) { return group_of(c->decided) == group; });
}

std::string summary(const run_record& run) {
  const auto& i = run.implementation;
  std::string md = fmt::format("# msabench: {}{}\n\n", markdown_escaped(i.name),
                               i.version.empty() ? "" : " " + markdown_escaped(i.version));
  md += fmt::format("**{}**: {} Exit code {}.\n\n", headline_of(run), explanation_of(run), exit_code_of(run));
  if (run.partial)
    md += "> **Partial:** this run was interrupted. What follows covers only the cases that ended before that.\n\n";
  if (!run.withdrawn.empty()) {
    md += fmt::format("> **Withdrawn, not run:** {}.\n>\n", count_of_cases(run.withdrawn.size()));
    for (const auto& c : run.withdrawn)
      md += fmt::format("> - {}: {}\n", markdown_code(c.name), markdown_escaped(c.reason));
    md += "\n";
  }
  if (!run.cases.empty()) {
    md += head({"verdict", "# cases", "meaning"});
    for (const auto& [v, n] : counts_of(run.cases))
      md += row({std::string(name(v)), std::to_string(n), std::string(meaning_of(v))});
    md += "\n";
  }
  return md;
}

std::string coverage(const run_record& run) {
  if (run.cases.empty()) return {};
  std::string md = "## What was verified\n\n";
  md += head({"operator", "# cases", "# passed", "# failed", "# not verified", "# unsupported or waived",
              "# rows checked", "# rows in all"});
  for (const auto& [operation, cases] : by_operator(run)) {
    std::int64_t checked = 0, total = 0;
    for (const auto* c : cases) {
      checked += c->rows_checked;
      total += c->rows_total;
    }
    md += row(
        {markdown_escaped(operation), std::to_string(cases.size()),
         std::to_string(count_of(cases, outcome_group::passed)), std::to_string(count_of(cases, outcome_group::failed)),
         std::to_string(count_of(cases, outcome_group::unverified)),
         std::to_string(count_of(cases, outcome_group::set_aside)), std::to_string(checked), std::to_string(total)});
  }
  return md +
         "\nWhere fewer rows were checked than there are, they were sampled: first and last rows, block borders, every "
         "sequence and head, and rows drawn after the run.\n\n";
}

std::string failing(const run_record& run) {
  std::string rows;
  for (const auto& c : run.cases) {
    if (group_of(c.decided) != outcome_group::failed) continue;
    std::string reason = markdown_escaped(c.reason);
    for (const auto& check : c.checks) {
      if (check.passed || !check.observed || !check.gate) continue;
      reason += fmt::format("{}{}:", reason.empty() ? "" : "<br>", markdown_escaped(check.id));
      for (const auto& line : lines_of(check)) reason += " " + markdown_escaped(line) + ";";
      reason.pop_back();
    }
    rows += row({markdown_code(c.name), verdict_with_kind(c), reason, markdown_code(c.repro)});
  }
  if (rows.empty()) return {};
  return "## Failing cases\n\n" + head({"case", "verdict", "reason", "reproduce"}) + rows + "\n";
}

std::string found_by_fuzzing(const run_record& run) {
  if (!run.fuzz || run.fuzz->failures.empty()) return {};
  std::string rows;
  for (const auto& f : run.fuzz->failures)
    rows +=
        row({markdown_escaped(f.what), markdown_code(f.smallest), markdown_code(f.found), f.finished ? "yes" : "no"});
  return "## Failures of random cases, one of each kind\n\n" +
         head({"what", "smallest case", "found as", "all smaller ones tried"}) + rows + "\n";
}

std::string warnings(const run_record& run) {
  std::string rows;
  for (const auto& c : run.cases)
    if (c.decided == verdict::quality_warning) rows += row({markdown_code(c.name), markdown_escaped(c.reason)});
  return rows.empty() ? "" : "## Quality warnings\n\n" + head({"case", "reason"}) + rows + "\n";
}

// Reasons that many cases share are told once.
std::string not_verified(const run_record& run) {
  std::vector<std::pair<verdict, counted_texts>> groups;
  for (const auto& c : run.cases) {
    const auto group = group_of(c.decided);
    if (group != outcome_group::unverified && group != outcome_group::set_aside) continue;
    auto at = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == c.decided; });
    if (at == groups.end()) at = groups.insert(groups.end(), {c.decided, {}});
    // Of random cases nobody looks into each that sees nothing.
    const bool expected = run.fuzz && c.decided == verdict::insensitive;
    const std::string reason = c.reason.empty() || expected ? std::string(meaning_of(c.decided)) : c.reason;
    // A fault of the suite or a blind case is looked into one by one; a declared limit is not.
    count_text(at->second, group == outcome_group::unverified && !expected ? c.name + ": " + reason : reason);
  }
  if (groups.empty()) return {};
  std::string md =
      "## Not verified\n\nNothing is known about these cases; they count as neither passed nor failed.\n\n";
  md += head({"verdict", "# cases", "reason"});
  for (const auto& [v, texts] : groups)
    for (const auto& [text, n] : texts) md += row({std::string(name(v)), std::to_string(n), markdown_escaped(text)});
  return md + "\n";
}

std::string unobserved(const run_record& run) {
  counted_texts texts;
  for (const auto& c : run.cases)
    for (const auto& text : unobserved_of(c)) count_text(texts, text);
  if (texts.empty()) return {};
  std::string md =
      "## Not observed\n\nThese could not be seen in cases that were judged by the rest of their checks:\n\n";
  for (const auto& [text, n] : texts)
    md += fmt::format("- {} ({} case{})\n", markdown_escaped(text), n, n == 1 ? "" : "s");
  return md + "\n";
}

std::string remarks(const run_record& run) {
  counted_texts texts;
  for (const auto& c : run.cases)
    for (const auto& text : c.remarks) count_text(texts, text);
  if (texts.empty()) return {};
  std::string md = "## Remarks\n\n";
  for (const auto& [text, n] : texts)
    md += fmt::format("- {} ({} case{})\n", markdown_escaped(text), n, n == 1 ? "" : "s");
  return md + "\n";
}

std::string other_parts(const run_record& run) {
  if (run.parts.empty()) return {};
  std::string md = "## Other parts\n\n" + head({"part", "of", "state", "# seconds", "detail"});
  for (const auto& p : run.parts)
    md += row({markdown_escaped(p.part + " " + p.item), markdown_escaped(p.of), std::string(name(p.state)),
               p.state == part_state::not_run ? "" : fmt::format("{:.0f}", p.seconds), markdown_escaped(p.detail)});
  return md + "\n";
}

std::string merged_from(const run_record& run) {
  if (run.merged_from.empty()) return {};
  std::string md = "## Merged from\n\n" + head({"file", "start", "# shard", "# cases", "", "command"});
  for (const auto& s : run.merged_from)
    md += row({markdown_code(s.file), markdown_escaped(s.start_utc),
               s.shard_count == 1 ? "" : fmt::format("{} of {}", s.shard_index, s.shard_count), std::to_string(s.cases),
               s.partial ? "interrupted" : "", markdown_code(fmt::format("{}", fmt::join(s.argv, " ")))});
  return md + "\n";
}

std::string where_it_ran(const run_record& run) {
  const auto& i = run.implementation;
  std::string md = "## Implementation, suite and environment\n\n" + head({"", ""});
  const auto add = [&](std::string_view what, const std::string& markdown) {
    if (!markdown.empty()) md += row({std::string(what), markdown});
  };
  const auto text = [](const std::string& s) { return s.empty() ? s : markdown_escaped(s); };
  const auto code = [](const std::string& s) { return s.empty() ? s : markdown_code(s); };
  add("implementation", text(i.name) + " " + text(i.version));
  add("description", text(i.description));
  add("file", code(i.path));
  add("file SHA-256", code(i.sha256));
  add("suite", text(run.suite_version));
  add("commit",
      run.suite_commit.empty() ? "" : code(run.suite_commit) + (run.suite_dirty ? " with local changes" : ""));
  add("self-test", text(run.selftest));
  add("level", text(run.level));
  if (run.fuzz) add("random cases", "for " + format_duration_s(run.fuzz->seconds));
  for (const auto& [list, hash] : run.lists) add("list " + markdown_escaped(list), code(hash));
  add("seed", std::to_string(run.seed));
  if (run.shard_count != 1) add("shard", fmt::format("{} of {}", run.shard_index, run.shard_count));
  add("start", text(run.start_utc));
  double seconds = 0;
  for (const auto& c : run.cases) seconds += c.elapsed_s;
  add("time in cases", format_duration_s(seconds));
  add("command", code(fmt::format("{}", fmt::join(run.argv, " "))));
  for (const auto& [key, value] : run.environment.items())
    add(markdown_escaped(key),
        text(value.is_string() ? value.get<std::string>()
                               : value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
  return md;
}

}  // namespace

std::string markdown_escaped(std::string_view text) {
  std::string out;
  for (const char c : one_line(text, max_cell_chars)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\\':
      case '`':
      case '*':
      case '_':
      case '~':
      case '[':
      case ']':
      case '|':
        out += '\\';
        [[fallthrough]];
      default:
        out += c;
    }
  }
  // What begins a block would begin one at the start of a line.
  if (!out.empty() && std::string_view("#+-=").find(out.front()) != std::string_view::npos) out.insert(0, 1, '\\');
  return out;
}

std::string markdown_code(std::string_view text) {
  // A span is closed by as many backticks as open it: one more than the longest run inside.
  std::string inner;
  std::size_t run = 0, longest = 0;
  for (const char c : one_line(text, max_cell_chars)) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
    // Tables split at a bare pipe even inside code.
    if (c == '|') inner += '\\';
    inner += c;
  }
  if (inner.empty()) return {};
  const std::string fence(longest + 1, '`');
  const char* pad = inner.front() == '`' || inner.back() == '`' ? " " : "";
  return fence + pad + inner + pad + fence;
}

std::string markdown_text(const run_record& run) {
  return summary(run) + found_by_fuzzing(run) + failing(run) + other_parts(run) + warnings(run) + not_verified(run) +
         unobserved(run) + coverage(run) + remarks(run) + merged_from(run) + where_it_ran(run);
}

void write_markdown(const run_record& run, const std::filesystem::path& path, std::string_view field) {
  write_file_atomically(field, path, markdown_text(run));
}

}  // namespace msabench

// SPDX-License-Identifier: Apache-2.0
#include "reports/selftest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/files.h"
#include "reports/markdown.h"

namespace msabench {
namespace {

// "K4" of "K4a".
std::string check_of(std::string_view id) {
  std::string whole(id);
  while (whole.size() > 2 && whole.back() >= 'a' && whole.back() <= 'z') whole.pop_back();
  return whole;
}

std::string without_seed(const std::string& case_name) { return case_name.substr(0, case_name.rfind('/')); }

std::string margin_of(const selftest_subject& mutant) {
  if (mutant.by.empty()) return "";
  for (const auto& f : mutant.trials[mutant.at].failed) {
    if (f.id != mutant.by || f.margin == 0) continue;
    return std::isfinite(f.margin) ? fmt::format("{:.3g}x", f.margin) : "not finite";
  }
  return "-";
}

// The checks that fail on the case where it dies, beside the one that it dies of.
std::string others_of(const selftest_subject& mutant) {
  if (mutant.by.empty()) return "";
  std::string others;
  for (const auto& f : mutant.trials[mutant.at].failed)
    if (f.id != mutant.by) others += (others.empty() ? "" : " ") + f.id;
  return others;
}

struct row {
  std::vector<std::string> cells;
};

std::vector<row> kill_rows(const selftest_record& run) {
  std::vector<row> rows = {{{"mutant", "dies of", "in", "margin", "fails too", "what it does wrong"}}};
  for (const auto& m : run.mutants)
    rows.push_back(
        {{m.name, m.by.empty() ? "LIVES" : m.by, m.trials.empty() ? "" : without_seed(m.trials[m.at].case_name),
          margin_of(m), others_of(m), m.what}});
  return rows;
}

constexpr const char* used_checks[] = {"K1", "K2", "K3", "K4a", "K4b", "K8", "K6u"};

std::vector<row> use_rows(const selftest_record& run) {
  std::vector<row> rows = {{{"variant", "cases"}}};
  for (const char* id : used_checks) rows[0].cells.emplace_back(id);
  rows[0].cells.emplace_back("what it does");
  for (const auto& v : run.variants) {
    std::map<std::string, double> use;
    std::ptrdiff_t verified = 0;
    for (const auto& t : v.trials) {
      verified += t.decided == verdict::pass || t.decided == verdict::quality_warning ? 1 : 0;
      for (const auto& [id, value] : t.use) {
        double& of = use[id.starts_with("K8") ? "K8" : id];
        of = std::max(of, value);
      }
    }
    row r{{v.name, fmt::format("{}/{}", verified, v.trials.size())}};
    for (const char* id : used_checks) r.cells.push_back(use.contains(id) ? fmt::format("{:.2f}", use[id]) : "");
    r.cells.push_back(v.what);
    rows.push_back(std::move(r));
  }
  return rows;
}

std::string columns_of(const std::vector<row>& rows) {
  std::string text;
  std::vector<std::size_t> width(rows.front().cells.size(), 0);
  for (const auto& r : rows)
    for (std::size_t i = 0; i < r.cells.size(); ++i) width[i] = std::max(width[i], r.cells[i].size());
  for (const auto& r : rows) {
    std::string line;
    for (std::size_t i = 0; i < r.cells.size(); ++i) line += fmt::format("{:<{}}  ", r.cells[i], width[i]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string table_of(const std::vector<row>& rows) {
  std::string text;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (const auto& cell : rows[i].cells) text += "| " + markdown_escaped(cell) + " ";
    text += "|\n";
    if (i == 0) {
      for (std::size_t c = 0; c < rows[i].cells.size(); ++c) text += "|---";
      text += "|\n";
    }
  }
  return text;
}

std::vector<std::string> complaints_of(const selftest_record& run) {
  std::vector<std::string> all;
  for (const auto* subjects : {&run.mutants, &run.variants})
    for (const auto& s : *subjects)
      if (!s.held) all.push_back(s.name + " " + s.complaint);
  return all;
}

std::string ending_of(const selftest_record& run) {
  if (!run.without.empty())
    return fmt::format("INVALID as a self-test: judged without {}. {}", run.without, score_of(run));
  if (!run.partial && run.mutants.empty() && run.variants.empty())
    return "NOTHING TRIED: no mutant or variant matches --only and has a case that matches --filter; msabench list "
           "mutants, msabench list variants and conformance/lists/core.selftest.txt name them";
  const std::string score = (run.partial              ? "PARTIAL: "
                             : exit_code_of(run) == 0 ? "HELD: "
                                                      : "FAILED: ") +
                            score_of(run);
  return fmt::format("{}. {:.0f} s, {:.0f} s of it inputs and oracle.", score, run.total_s, run.oracle_s);
}

}  // namespace

std::vector<sole_killer> sole_killers(const selftest_record& run) {
  std::map<std::string, std::vector<std::string>> alone;
  for (const auto& m : run.mutants) {
    std::set<std::string> checks;
    for (const auto& t : m.trials) {
      for (const auto& f : t.failed) checks.insert(check_of(f.id));
      if (t.decided == verdict::crash || t.decided == verdict::timeout) checks.insert(std::string(name(t.decided)));
    }
    if (checks.size() == 1) alone[*checks.begin()].push_back(m.name);
  }
  std::vector<sole_killer> all;
  for (auto& [check, mutants] : alone) all.push_back({check, std::move(mutants)});
  return all;
}

std::string selftest_text(const selftest_record& run) {
  std::string text = run.mutants.empty() ? "" : columns_of(kill_rows(run)) + "\n";
  if (!run.variants.empty()) text += "Largest use of each limit, 1 = all of it:\n" + columns_of(use_rows(run)) + "\n";
  if (run.without.empty())
    for (const auto& [check, mutants] : sole_killers(run))
      text +=
          fmt::format("{} of {} alone: {}\n", mutants.size() == 1 ? "1 dies" : fmt::format("{} die", mutants.size()),
                      check, fmt::join(mutants, " "));
  for (const auto& line : complaints_of(run)) text += "not held: " + line + "\n";
  return text + ending_of(run) + "\n";
}

std::string selftest_markdown(const selftest_record& run) {
  std::string text = "# Self-test of the suite\n\n" + markdown_escaped(ending_of(run)) + "\n";
  for (const auto& line : complaints_of(run)) text += "- not held: " + markdown_escaped(line) + "\n";
  if (!run.mutants.empty()) text += "\n## Mutants\n\n" + table_of(kill_rows(run));
  if (!run.variants.empty()) text += "\n## Variants, and the largest use of each limit\n\n" + table_of(use_rows(run));
  text += "\n## What each check alone is worth\n\n";
  for (const auto& [check, mutants] : sole_killers(run))
    text += fmt::format("- {}: {}\n", check, fmt::join(mutants, ", "));
  return text;
}

void write_selftest(const selftest_record& run, const std::filesystem::path& json,
                    const std::filesystem::path& markdown, std::string_view field) {
  write_file_atomically(field, json, to_json(run).dump(2) + "\n");
  try {
    write_file_atomically(field, markdown, selftest_markdown(run));
  } catch (...) {
    // Both or neither.
    std::error_code ignored;
    std::filesystem::remove(json, ignored);
    throw;
  }
}

}  // namespace msabench

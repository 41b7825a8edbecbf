// SPDX-License-Identifier: Apache-2.0
#include "conformance/lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "conformance/cost.h"
#include "conformance/list_lines.h"
#include "conformance/lists_data.h"
#include "conformance/shards.h"
#include "core/error.h"
#include "core/hashes.h"

namespace msabench {

std::string built_in_list_text(std::string_view name) {
  for (const auto& each : built_in_lists)
    if (each.name == name) return std::string(each.text);
  return "";
}

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t first = line.find_first_not_of(" \t", at);
    if (first == std::string_view::npos) break;
    at = std::min(line.find_first_of(" \t", first), line.size());
    words.emplace_back(line.substr(first, at - first));
  }
  return words;
}

void require_case_name(const std::string& where, std::string_view name) {
  try {
    parse_case(std::string(name) + "/s0");
  } catch (const usage_error& e) {
    bad_input("list", where, e.what(), "one case name without its seed per line");
  }
}

namespace {

class expander {
 public:
  explicit expander(std::string (*resolve)(std::string_view)) : resolve_(resolve) {}

  void add(std::string_view list, std::string_view text, int depth) {
    if (depth > 8) bad_input("list", list, "includes itself, or nests more than 8 deep", "remove the circle");
    for_each_line(text, [&](int number, std::string_view line) {
      const std::string where = fmt::format("{}:{}", list, number);
      if (line.starts_with("include ")) return include(where, std::string(line.substr(8)), depth);
      constexpr std::string_view mark = "every_shard ";
      const std::string name(line.starts_with(mark) ? line.substr(line.find_first_not_of(" \t", mark.size())) : line);
      require_case_name(where, name);
      if (line.starts_with(mark)) list_.every_shard.insert(name);
      if (seen_.insert(name).second) list_.names.push_back(name);
    });
  }

  case_list take() { return std::move(list_); }

 private:
  void include(const std::string& where, const std::string& nested, int depth) {
    const std::string text = resolve_(nested);
    if (text.empty())
      bad_input("list", where, fmt::format("includes unknown list '{}'", nested), "name an existing list");
    add(nested, text, depth + 1);
  }

  std::string (*resolve_)(std::string_view);
  case_list list_;
  std::set<std::string> seen_;
};

std::string hash_of(const std::vector<std::string>& names) {
  std::string joined;
  for (const auto& each : names) joined += each + "\n";
  return sha256_hex(joined);
}

// Whether a selection wants the case, whatever the shard.
bool wants(const case_selection& wanted, const std::string& full_name) {
  const auto& ops = wanted.operators;
  const std::string operation = full_name.substr(0, full_name.find('/'));
  return (ops.empty() || std::ranges::find(ops, operation) != ops.end()) && any_glob_matches(wanted.filters, full_name);
}

std::string with_seed(const std::string& name, const case_selection& wanted) {
  return fmt::format("{}/s{}", name, wanted.seed);
}

}  // namespace

std::vector<std::string> levels() { return {"sanitize", "smoke", "core", "full"}; }

case_list expand_list(std::string_view name, std::string_view text, std::string (*resolve)(std::string_view)) {
  expander all(resolve);
  all.add(name, text, 0);
  case_list list = all.take();
  list.name = name;
  list.sha256 = hash_of(list.names);
  return list;
}

void add_cases(case_list& list, std::string_view source, std::string_view text) {
  const auto more = expand_list(source, text, [](std::string_view) { return std::string(); });
  for (const auto& each : more.names)
    if (std::ranges::find(list.names, each) == list.names.end()) list.names.push_back(each);
  list.every_shard.insert(more.every_shard.begin(), more.every_shard.end());
  list.sha256 = hash_of(list.names);
}

std::vector<withdrawn_case> read_withdrawn(std::string_view text) {
  std::vector<withdrawn_case> all;
  for_each_line(text, [&](int number, std::string_view line) {
    const std::string where = fmt::format("withdrawn:{}", number);
    const auto end = line.find_first_of(" \t");
    const std::string name(line.substr(0, end));
    require_case_name(where, name);
    if (end == std::string_view::npos) bad_input("list", where, name + " has no reason", "NAME  REASON");
    for (const auto& before : all)
      if (before.name == name) bad_input("list", where, name + " is withdrawn already", "one line for a case");
    all.push_back({name, std::string(line.substr(line.find_first_not_of(" \t", end)))});
  });
  return all;
}

const std::vector<withdrawn_case>& withdrawn_cases() {
  static const auto all = [] {
    try {
      return read_withdrawn(built_in_list_text("withdrawn"));
    } catch (const usage_error& e) {
      throw suite_error(e.what());  // the program's own list
    }
  }();
  return all;
}

void withdraw(case_list& list, const std::vector<withdrawn_case>& cases) {
  for (const auto& each : cases) {
    if (std::erase(list.names, each.name) == 0) continue;
    list.every_shard.erase(each.name);
    list.withdrawn.push_back(each);
  }
  list.sha256 = hash_of(list.names);
}

case_list load_list(std::string_view level) {
  const auto known = levels();
  if (std::find(known.begin(), known.end(), level) == known.end())
    bad_input("--level", level, "unknown level", fmt::format("one of {}", fmt::join(known, ", ")));
  try {
    case_list list = expand_list(level, built_in_list_text(level), built_in_list_text);
    withdraw(list, withdrawn_cases());
    return list;
  } catch (const usage_error& e) {
    throw suite_error(e.what());  // the program's own list
  }
}

// Iterative: a pattern of many stars must not take exponential time.
bool glob_matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool any_glob_matches(const std::vector<std::string>& patterns, std::string_view text) {
  return patterns.empty() ||
         std::ranges::any_of(patterns, [&](const std::string& each) { return glob_matches(each, text); });
}

std::vector<case_spec> choose(const case_list& list, const case_selection& wanted) {
  std::vector<case_spec> cases, chosen;
  std::vector<double> work;  // of those that are split
  std::vector<bool> everywhere;
  for (const auto& each : list.names) {
    const std::string full = with_seed(each, wanted);
    if (!wants(wanted, full)) continue;
    cases.push_back(parse_case(full));
    everywhere.push_back(list.every_shard.contains(each));
    if (!everywhere.back()) work.push_back(expected_work(cases.back()));
  }
  if (wanted.shard_count == 1) return cases;
  const auto shard_of = assign_shards(work, wanted.shard_count);
  std::size_t at = 0;
  for (std::size_t i = 0; i < cases.size(); ++i)
    if (everywhere[i] || shard_of[at++] == wanted.shard_index) chosen.push_back(std::move(cases[i]));
  return chosen;
}

std::vector<withdrawn_case> withdrawn_of(const case_list& list, const case_selection& wanted) {
  std::vector<withdrawn_case> chosen;
  for (const auto& each : list.withdrawn)
    if (wants(wanted, with_seed(each.name, wanted))) chosen.push_back(each);
  return chosen;
}

}  // namespace msabench

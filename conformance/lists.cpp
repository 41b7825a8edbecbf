// SPDX-License-Identifier: Apache-2.0
#include "conformance/lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "conformance/lists_data.h"
#include "core/error.h"
#include "core/hashes.h"

namespace msabench {

namespace {

std::string built_in(std::string_view name) {
  for (const auto& each : built_in_lists)
    if (each.name == name) return std::string(each.text);
  return "";
}

class expander {
 public:
  explicit expander(std::string (*resolve)(std::string_view)) : resolve_(resolve) {}

  void add(std::string_view list, std::string_view text, int depth) {
    if (depth > 8) bad_input("list", list, "includes itself, or nests more than 8 deep", "remove the circle");
    int line_number = 0;
    while (!text.empty()) {
      ++line_number;
      const auto end = text.find('\n');
      std::string_view line = text.substr(0, end);
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
      line = line.substr(0, line.find('#'));
      const auto first = line.find_first_not_of(" \t\r");
      if (first == std::string_view::npos) continue;
      line = line.substr(first, line.find_last_not_of(" \t\r") - first + 1);
      const std::string where = fmt::format("{}:{}", list, line_number);
      if (line.starts_with("include ")) {
        const std::string nested(line.substr(8));
        const std::string nested_text = resolve_(nested);
        if (nested_text.empty())
          bad_input("list", where, fmt::format("includes unknown list '{}'", nested), "name an existing list");
        add(nested, nested_text, depth + 1);
        continue;
      }
      try {
        parse_case(std::string(line) + "/s0");
      } catch (const usage_error& e) {
        bad_input("list", where, e.what(), "one case name without its seed per line");
      }
      if (seen_.insert(std::string(line)).second) names_.emplace_back(line);
    }
  }

  std::vector<std::string> take() { return std::move(names_); }

 private:
  std::string (*resolve_)(std::string_view);
  std::vector<std::string> names_;
  std::set<std::string> seen_;
};

}  // namespace

std::vector<std::string> levels() { return {"smoke", "core"}; }

case_list expand_list(std::string_view name, std::string_view text, std::string (*resolve)(std::string_view)) {
  expander all(resolve);
  all.add(name, text, 0);
  case_list list;
  list.name = name;
  list.names = all.take();
  std::string joined;
  for (const auto& each : list.names) joined += each + "\n";
  list.sha256 = sha256_hex(joined);
  return list;
}

case_list load_list(std::string_view level) {
  const auto known = levels();
  if (std::find(known.begin(), known.end(), level) == known.end())
    bad_input("--level", level, "unknown level", fmt::format("one of {}", fmt::join(known, ", ")));
  try {
    return expand_list(level, built_in(level), built_in);
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

std::vector<case_spec> choose(const case_list& list, const selection& wanted) {
  std::vector<case_spec> chosen;
  std::int64_t index = 0;
  for (const auto& each : list.names) {
    const std::string full = fmt::format("{}/s{}", each, wanted.seed);
    const case_spec c = parse_case(full);
    const auto& ops = wanted.operators;
    if (!ops.empty() && std::find(ops.begin(), ops.end(), name(c.operation)) == ops.end()) continue;
    if (!wanted.filter.empty() && !glob_matches(wanted.filter, full)) continue;
    if (index++ % wanted.shard_count == wanted.shard_index) chosen.push_back(c);
  }
  return chosen;
}

}  // namespace msabench

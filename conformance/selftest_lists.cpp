// SPDX-License-Identifier: Apache-2.0
#include "conformance/selftest_lists.h"

#include <fmt/format.h>

#include <algorithm>

#include "conformance/list_lines.h"
#include "conformance/lists.h"
#include "core/error.h"
#include "core/hashes.h"

namespace msabench {

namespace {

std::vector<std::string> split_at_commas(std::string_view text) {
  std::vector<std::string> parts;
  for (;;) {
    const auto comma = text.find(',');
    parts.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

// The cases of a line, from word `first` on.
std::vector<std::string> cases_of(const std::string& where, const std::vector<std::string>& words, std::size_t first) {
  if (words.size() <= first) bad_input("list", where, words[0] + " has no case", "name the cases that it runs");
  for (std::size_t i = first; i < words.size(); ++i) require_case_name(where, words[i]);
  return {words.begin() + static_cast<std::ptrdiff_t>(first), words.end()};
}

// Calls entry(where, words) for each line, and sees that each has a first word of its own.
template <class Entry>
void for_each_entry(std::string_view list, std::string_view text, Entry entry) {
  std::vector<std::string> seen;
  for_each_line(text, [&](int number, std::string_view line) {
    const std::string where = fmt::format("{}:{}", list, number);
    const auto words = words_of(line);
    if (std::ranges::find(seen, words[0]) != seen.end())
      bad_input("list", where, words[0] + " is listed already", "one line for each");
    seen.push_back(words[0]);
    entry(where, words);
  });
}

selftest_lists load() {
  selftest_lists lists;
  lists.mutants = read_mutants(built_in_list_text("mutants"));
  lists.variants = read_variants(built_in_list_text("variants"));
  constexpr std::string_view cases = "core.selftest";
  lists.cases = expand_list(cases, built_in_list_text(cases), [](std::string_view) { return std::string(); }).names;
  std::string text;
  for (const std::string_view list : {std::string_view("mutants"), std::string_view("variants"), cases})
    for_each_line(built_in_list_text(list), [&](int, std::string_view line) {
      for (const auto& word : words_of(line)) text += word + " ";
      text += "\n";
    });
  lists.sha256 = sha256_hex(text);
  return lists;
}

}  // namespace

std::vector<mutant_entry> read_mutants(std::string_view text) {
  std::vector<mutant_entry> all;
  for_each_entry("mutants", text, [&](const std::string& where, const std::vector<std::string>& words) {
    if (words.size() < 2) bad_input("list", where, words[0] + " has no checks", "ID CHECK[,CHECK...] CASE...");
    all.push_back({words[0], split_at_commas(words[1]), cases_of(where, words, 2)});
  });
  return all;
}

std::vector<variant_entry> read_variants(std::string_view text) {
  std::vector<variant_entry> all;
  for_each_entry("variants", text, [&](const std::string& where, const std::vector<std::string>& words) {
    all.push_back({words[0], cases_of(where, words, 1)});
  });
  return all;
}

const selftest_lists& built_in_selftest_lists() {
  static const selftest_lists lists = [] {
    try {
      return load();
    } catch (const usage_error& e) {
      throw suite_error(e.what());  // the program's own lists
    }
  }();
  return lists;
}

std::string score_in(std::string_view text, std::string_view lists_sha256) {
  std::string hash, score;
  for_each_line(text, [&](int, std::string_view line) {
    const auto blank = line.find(' ');
    (line.substr(0, blank) == "lists" ? hash : score) = line.substr(std::min(line.size(), blank + 1));
  });
  return hash == lists_sha256 && !score.empty() ? score : "none";
}

std::string stored_selftest_score() {
  return score_in(built_in_list_text("selftest_score"), built_in_selftest_lists().sha256);
}

}  // namespace msabench

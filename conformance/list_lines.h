// SPDX-License-Identifier: Apache-2.0
// The lines of a list text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace msabench {

// Calls line(number, text) for every line that says something, without its comment and the blanks around it.
template <class F>
void for_each_line(std::string_view text, F&& line) {
  for (int number = 1; !text.empty(); ++number) {
    const auto end = text.find('\n');
    std::string_view each = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    each = each.substr(0, each.find('#'));
    const auto first = each.find_first_not_of(" \t\r");
    if (first == std::string_view::npos) continue;
    line(number, each.substr(first, each.find_last_not_of(" \t\r") - first + 1));
  }
}

// What stands between blanks.
std::vector<std::string> words_of(std::string_view line);

// The text of a built-in list; empty if there is none.
std::string built_in_list_text(std::string_view name);

// usage_error naming `where` (list and line) unless it is the name of a case without its seed.
void require_case_name(const std::string& where, std::string_view name);

}  // namespace msabench

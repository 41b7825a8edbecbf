// SPDX-License-Identifier: Apache-2.0
// The text of PTX cut into statements, and the words and numbers of one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace msabench::ptx {

struct statement {
  std::string text;  ///< of one instruction or directive without its semicolon, "{", "}" or "label:"
  std::uint32_t line;
};

/// Without comments; line numbers are for messages.
std::vector<statement> statements_of(const std::string& text);

std::string_view trimmed(std::string_view s);
/// Parts between separators that stand in no bracket.
std::vector<std::string> split(std::string_view s, char separator);
/// Parts between spaces that stand in no bracket.
std::vector<std::string> words_of(std::string_view s);
/// Bits of an integer, or of a number written as 0f... or 0d...; nothing: it is no number.
std::optional<std::uint64_t> number(std::string_view s);
[[noreturn]] void refuse(const statement& s, const std::string& why);

/// What ".param .align 8 .b8 name[24]" and its like declare.
struct variable {
  std::string name, initial;
  std::int64_t align = 1, bytes = 0, element_bytes = 1;
};
variable declared(std::string_view text);

}  // namespace msabench::ptx

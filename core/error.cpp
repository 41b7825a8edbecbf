// SPDX-License-Identifier: Apache-2.0
#include "core/error.h"

#include <fmt/format.h>

#include <cstdint>
#include <vector>

namespace msabench {
namespace {

struct code_point {
  std::uint32_t value = 0;
  std::size_t bytes = 0;  // 0: not UTF-8
};

// The code point at the start of text, by the table of well-formed sequences of the Unicode standard: no overlong
// forms, no surrogates, nothing above U+10FFFF.
code_point decode_utf8(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xc2 && lead <= 0xdf   ? 2
                            : (lead & 0xf0) == 0xe0        ? 3
                            : lead >= 0xf0 && lead <= 0xf4 ? 4
                                                           : 0;
  if (bytes == 0 || text.size() < bytes) return {};
  std::uint32_t value = lead & (0x7fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    value = value << 6 | (byte(i) & 0x3fu);
  }
  const bool overlong = (bytes == 3 && value < 0x800) || (bytes == 4 && value < 0x10000);
  if (overlong || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff)) return {};
  return {value, bytes};
}

// Would break the line, move the cursor or reorder the text around it.
bool disturbs_a_line(std::uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
         (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

std::string escaped(std::uint32_t c) {
  switch (c) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return c < 0x100 ? fmt::format("\\x{:02x}", c) : fmt::format("\\u{:04x}", c);
  }
}

constexpr std::size_t max_value_chars = 80;
constexpr std::size_t max_text_chars = 600;

}  // namespace

std::string one_line(std::string_view text, std::size_t max_chars) {
  std::vector<std::string> characters;
  while (!text.empty() && characters.size() <= max_chars) {
    const code_point point = decode_utf8(text);
    std::string shown;
    if (point.bytes == 0) {
      shown = fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
    } else if (disturbs_a_line(point.value)) {
      shown = escaped(point.value);
    } else {
      characters.emplace_back(text.substr(0, point.bytes));
    }
    for (const char c : shown) characters.emplace_back(1, c);
    text.remove_prefix(point.bytes == 0 ? 1 : point.bytes);
  }
  std::string line;
  const bool cut = characters.size() > max_chars;
  const std::size_t kept = cut ? max_chars - std::min<std::size_t>(max_chars, 3) : characters.size();
  for (std::size_t i = 0; i < kept; ++i) line += characters[i];
  return cut ? line + "..." : line;
}

std::string printable_lines(std::string_view text) {
  std::string out;
  for (;;) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    // An escaped byte takes at most four characters, so nothing is cut.
    out += one_line(line, 4 * line.size());
    if (end == std::string_view::npos) return out;
    out += '\n';
    text.remove_prefix(end + 1);
  }
}

std::string diagnostic::line() const {
  std::string text = one_line(field, max_text_chars);
  if (!value.empty()) {
    if (!text.empty()) text += ' ';
    text += one_line(value, max_value_chars);
  }
  if (!text.empty()) text += ": ";
  text += one_line(problem, max_text_chars);
  if (!remedy.empty()) text += "; " + one_line(remedy, max_text_chars);
  return text;
}

usage_error::usage_error(diagnostic d) : std::runtime_error(d.line()), diagnostic_(std::move(d)) {}

suite_error::suite_error(const std::string& message) : std::runtime_error(one_line(message, max_text_chars)) {}

void bad_input(std::string_view field, std::string_view value, std::string_view problem, std::string_view remedy) {
  throw usage_error({std::string(field), std::string(value), std::string(problem), std::string(remedy)});
}

}  // namespace msabench

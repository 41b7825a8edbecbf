// SPDX-License-Identifier: Apache-2.0
#include "tests/ptx/statements.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>

#include "tests/ptx/program.h"

namespace msabench::ptx {
namespace {

bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%' || c == '.';
}

}  // namespace

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.front()))) s.remove_prefix(1);
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.back()))) s.remove_suffix(1);
  return s;
}

std::vector<std::string> split(std::string_view s, char separator) {
  std::vector<std::string> parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= s.size(); ++i) {
    if (i < s.size() && std::strchr("([{", s[i]) != nullptr) ++depth;
    if (i < s.size() && std::strchr(")]}", s[i]) != nullptr) --depth;
    if (i == s.size() || (s[i] == separator && depth == 0)) {
      const auto part = trimmed(s.substr(begin, i - begin));
      if (!part.empty()) parts.emplace_back(part);
      begin = i + 1;
    }
  }
  return parts;
}

std::vector<std::string> words_of(std::string_view s) {
  std::vector<std::string> words;
  std::string word;
  int depth = 0;
  for (const char c : s) {
    if (c == '[' || c == '<') ++depth;
    if (c == ']' || c == '>') --depth;
    if (std::isspace(static_cast<unsigned char>(c)) && depth == 0) {
      if (!word.empty()) words.push_back(std::move(word));
      word.clear();
    } else {
      word += c;
    }
  }
  if (!word.empty()) words.push_back(std::move(word));
  return words;
}

[[noreturn]] void refuse(const statement& s, const std::string& why) {
  throw ptx_error("PTX line " + std::to_string(s.line) + ": " + s.text + ": " + why);
}

std::optional<std::uint64_t> number(std::string_view s) {
  bool negative = false;
  if (!s.empty() && s.front() == '-') negative = true, s.remove_prefix(1);
  if (s.empty() || !std::isdigit(static_cast<unsigned char>(s.front()))) return std::nullopt;
  const auto digits = [](std::string_view text, int base) -> std::optional<std::uint64_t> {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
  };
  // 0f3F800000 and 0d3FF0000000000000 are the bits of a number.
  if (s.size() == 10 && (s.starts_with("0f") || s.starts_with("0F"))) {
    const auto bits = digits(s.substr(2), 16);
    return bits && negative ? *bits ^ 0x80000000u : bits;
  }
  if (s.size() == 18 && (s.starts_with("0d") || s.starts_with("0D"))) {
    const auto bits = digits(s.substr(2), 16);
    return bits && negative ? *bits ^ (std::uint64_t{1} << 63) : bits;
  }
  if (s.ends_with('U')) s.remove_suffix(1);
  const auto value = s.starts_with("0x") || s.starts_with("0X") ? digits(s.substr(2), 16) : digits(s, 10);
  return value && negative ? 0 - *value : value;
}

variable declared(std::string_view text) {
  variable v;
  if (const auto at = text.find('='); at != text.npos) {
    v.initial = trimmed(text.substr(at + 1));
    text = text.substr(0, at);
  }
  const auto words = words_of(text);
  std::int64_t count = 1;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& w = words[i];
    if (w == ".align" && i + 1 < words.size()) {
      v.align = static_cast<std::int64_t>(number(words[++i]).value_or(1));
    } else if (w.front() == '.') {
      if (const type t = type_named(w.substr(1)); t != type::none) v.element_bytes = bits_of(t) / 8;
    } else {
      const auto bracket = w.find('[');
      v.name = w.substr(0, bracket);
      if (bracket != w.npos)
        count = static_cast<std::int64_t>(number(w.substr(bracket + 1, w.find(']') - bracket - 1)).value_or(0));
    }
  }
  v.align = std::max(v.align, v.element_bytes);
  v.bytes = v.element_bytes * count;
  return v;
}

std::vector<statement> statements_of(const std::string& text) {
  std::vector<statement> all;
  std::string now;
  std::uint32_t line = 1, began = 1;
  int depth = 0;  // of braces and parentheses within a statement
  const auto end = [&] {
    if (const auto s = trimmed(now); !s.empty()) all.push_back({std::string(s), began});
    now.clear();
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') ++line;
    if (c == '/' && i + 1 < text.size() && text[i + 1] == '/') {
      while (i < text.size() && text[i] != '\n') ++i;
      ++line;
      now += ' ';
      // A directive such as .version has no semicolon.
      if (const auto s = trimmed(now);
          s.starts_with(".version") || s.starts_with(".target") || s.starts_with(".address_size"))
        end();
      continue;
    }
    if (c == '/' && i + 1 < text.size() && text[i + 1] == '*') {
      for (i += 2; i + 1 < text.size() && !(text[i] == '*' && text[i + 1] == '/'); ++i) line += text[i] == '\n';
      ++i;
      continue;
    }
    const auto before = trimmed(now);
    if (c == '\n' &&
        (before.starts_with(".version") || before.starts_with(".target") || before.starts_with(".address_size") ||
         before.starts_with(".loc") || before.starts_with(".file"))) {
      end();
      continue;
    }
    if (before.empty()) began = line;
    if (depth == 0 && c == ';') {
      end();
      continue;
    }
    // A brace begins a scope unless an operand or a list of values is expected.
    const bool head = before.starts_with(".entry") || before.starts_with(".visible") || before.starts_with(".weak") ||
                      before.starts_with(".func");
    if (depth == 0 && c == '{' && (before.empty() || head)) {
      end();
      all.push_back({"{", line});
      continue;
    }
    if (depth == 0 && c == '}' && before.empty()) {
      all.push_back({"}", line});
      continue;
    }
    if (depth == 0 && c == ':' && std::all_of(before.begin(), before.end(), is_name) &&
        !(i + 1 < text.size() && text[i + 1] == ':') && !before.empty() && before.find("::") == before.npos) {
      now += c;
      end();
      continue;
    }
    if (c == '{' || c == '(' || c == '[') ++depth;
    if (c == '}' || c == ')' || c == ']') --depth;
    now += c == '\n' || c == '\t' ? ' ' : c;
  }
  end();
  return all;
}

}  // namespace msabench::ptx

// SPDX-License-Identifier: Apache-2.0
// Strict reading of one JSON object into a struct: what is there must have the right type and range, or one line says
// which field is wrong. Keys that are not asked for are ignored, so that a newer minor version can be read. A key that
// is absent leaves its target as it was (the canonical 0 of plugin.h, where short structs read likewise); require() is
// for fields without such a default.
//
// Enumerators travel as words. A value that has no word (foreign code answered it) goes out as its bare number, which
// reading refuses.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/error.h"

namespace msabench {

template <class Enum>
struct enum_word {
  Enum value;
  std::string_view word;
};

template <class Enum, std::size_t N>
nlohmann::json word_or_number(Enum value, const std::array<enum_word<Enum>, N>& words) {
  for (const auto& w : words)
    if (w.value == value) return std::string(w.word);
  return static_cast<std::int64_t>(value);
}

// A known dtype by name, {0, 0, .} as "none", any other triple as {"code", "bits", "lanes"}.
nlohmann::json dtype_to_json(dtype type);

class json_fields {
 public:
  // `path` names the object in messages: "problem". usage_error unless `in` is an object. `in` must outlive this.
  json_fields(std::string_view path, const nlohmann::json& in);

  bool has(std::string_view key) const;
  // The value; usage_error if absent.
  const nlohmann::json& require(std::string_view key) const;
  // Null if absent.
  const nlohmann::json* find(std::string_view key) const;
  std::string path_of(std::string_view key) const;

  void read(std::string_view key, bool& out) const;
  void read(std::string_view key, std::string& out) const;
  // A number, or null beside KEY_tag, as put_number writes them.
  void read(std::string_view key, double& out) const;
  void read(std::string_view key, float& out) const;
  void read(std::string_view key, dtype& out) const;
  void read(std::string_view key, std::vector<std::string>& out) const;
  template <class Int>
    requires(std::is_integral_v<Int> && !std::is_same_v<Int, bool>)
  void read(std::string_view key, Int& out) const {
    if (const auto* value = find(key)) out = integer<Int>(key, *value);
  }
  template <class Int>
    requires(std::is_integral_v<Int> && !std::is_same_v<Int, bool>)
  void read(std::string_view key, std::vector<Int>& out) const {
    const auto* value = find(key);
    if (!value) return;
    if (!value->is_array()) refuse(key, *value, "is no list");
    std::vector<Int> read;
    for (const auto& element : *value) read.push_back(integer<Int>(key, element));
    out = std::move(read);
  }
  // 64-bit numbers without sign travel as decimal strings: JSON readers that use doubles would round them.
  void read_uint64_string(std::string_view key, std::uint64_t& out) const;
  template <class Enum, std::size_t N>
  void read_word(std::string_view key, Enum& out, const std::array<enum_word<Enum>, N>& words) const {
    const auto* value = find(key);
    if (!value) return;
    std::string choices;
    for (const auto& w : words) {
      if (value->is_string() && value->template get_ref<const std::string&>() == w.word) {
        out = w.value;
        return;
      }
      choices += fmt::format("{}{}", choices.empty() ? "" : ", ", w.word);
    }
    refuse(key, *value, "is not one of the words", "use " + choices);
  }

  [[noreturn]] void refuse(std::string_view key, const nlohmann::json& value, std::string_view problem,
                           std::string_view remedy = {}) const;

 private:
  template <class Int>
  Int integer(std::string_view key, const nlohmann::json& value) const {
    using limits = std::numeric_limits<Int>;
    if (!value.is_number_integer()) refuse(key, value, "is no integer");
    if (value.is_number_unsigned()) {
      const auto wide = value.template get<std::uint64_t>();
      if (wide <= static_cast<std::uint64_t>(limits::max())) return static_cast<Int>(wide);
    } else {
      // The library keeps integers below 0 signed and, when built by code, small positive ones too.
      const auto wide = value.template get<std::int64_t>();
      if (std::in_range<Int>(wide)) return static_cast<Int>(wide);
    }
    refuse(key, value, fmt::format("is outside {} .. {}", limits::min(), limits::max()));
  }

  std::string path_;
  const nlohmann::json& in_;
};

}  // namespace msabench

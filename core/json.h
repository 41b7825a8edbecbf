// SPDX-License-Identifier: Apache-2.0
// JSON at the suite's borders: numbers that may not be finite going out, foreign text coming in.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace msabench {

// The number, or null where it is not finite: JSON has no NaN or infinity, and non_finite_tag says which it was.
nlohmann::json finite_or_tag(double x);
// "nan", "inf" or "-inf"; empty for a finite number.
std::string_view non_finite_tag(double x) noexcept;
// obj[key] = x; where x is not finite, obj[key] = null and obj[key + "_tag"] = its tag.
void put_number(nlohmann::json& obj, std::string_view key, double x);
// Inverse of put_number. suite_error if the key is missing or neither a number nor tagged null.
double get_number(const nlohmann::json& obj, std::string_view key);

// Foreign text as reports keep it: one line, at most 2000 characters.
std::string sentence(std::string_view text);
nlohmann::json sentences(const std::vector<std::string>& texts);

struct json_limits {
  std::size_t max_bytes = std::size_t{64} << 20;
  int max_depth = 64;  // of nested arrays and objects
};

// Parses foreign text. Refuses, as usage_error naming field and source, what is longer or deeper than the limits, not
// JSON, has trailing text, bytes that are not UTF-8, numbers beyond double, or the same key twice in an object.
nlohmann::json parse_json(std::string_view field, std::string_view source, std::string_view text,
                          const json_limits& limits = {});
// The same where the text has no name of its own.
nlohmann::json parse_json(std::string_view field, std::string_view text);

}  // namespace msabench

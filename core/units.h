// SPDX-License-Identifier: Apache-2.0
// Numbers as users write and read them. Parsers take the whole text or throw usage_error naming the field; nothing here
// depends on the locale.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace msabench {

inline constexpr std::int64_t max_size = std::int64_t{16} << 20;

// A size 1 .. 16M: decimal digits without leading zero, then nothing, K (2^10) or M (2^20).
std::int64_t parse_size(std::string_view field, std::string_view text);
// The canonical text: M if divisible by it, else K if divisible, else plain (1M, 128K, 2047). Any value >= 0.
std::string format_size(std::int64_t size);
// text is a size, written as format_size writes it.
bool canonical_size(std::string_view text) noexcept;

// Sizes with commas between them, at most 1000; none for an empty text.
std::vector<std::int64_t> parse_sizes(std::string_view field, std::string_view text);

// Decimal digits, 0 .. 2^64 - 1, no sign; leading zeros are refused.
std::uint64_t parse_uint64(std::string_view field, std::string_view text);
// Seconds, greater than 0 and at most one week (604800); decimal, fraction and exponent allowed.
double parse_seconds(std::string_view field, std::string_view text);

// For people, three significant digits: "12.3 M", "847", "1.05 G" (powers of 1000).
std::string format_count(double count);
// "812 ns", "12.3 us", "4.56 ms", "7.89 s", "3 min 20 s", "2 h 05 min".
std::string format_duration_s(double seconds);
// "512 B", "1.50 KiB", "12.0 GiB" (powers of 1024).
std::string format_bytes(double bytes);

}  // namespace msabench

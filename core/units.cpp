// SPDX-License-Identifier: Apache-2.0
#include "core/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "core/error.h"

namespace msabench {
namespace {

bool all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool has_leading_zero(std::string_view text) { return text.size() > 1 && text.front() == '0'; }

constexpr std::string_view size_remedy = "give 1 to 16M, digits with an optional K (1024) or M (1048576)";

// Empty and a reason, or the size.
std::optional<std::int64_t> read_size(std::string_view text, std::string_view& reason) {
  const auto refuse = [&](std::string_view why) {
    reason = why;
    return std::nullopt;
  };
  if (text.empty()) return refuse("is empty");
  if (text.front() == '-') return refuse("is negative");
  std::string_view digits = text;
  std::int64_t unit = 1;
  if (text.back() == 'K' || text.back() == 'M') {
    unit = text.back() == 'K' ? 1024 : 1024 * 1024;
    digits.remove_suffix(1);
  }
  const bool starts_as_number = all_digits(digits.substr(0, 1));
  if (!all_digits(digits)) return refuse(starts_as_number ? "has a suffix that is not K or M" : "is not a size");
  if (has_leading_zero(digits)) return refuse("has a leading zero");
  if (digits == "0") return refuse("is zero");
  // Eight digits hold 16M written out; with more than that no product below can overflow unseen.
  if (digits.size() > 8) return refuse("is too large");
  std::int64_t count = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), count);
  if (count > max_size / unit) return refuse("is too large");
  return count * unit;
}

std::string three_digits(double x) {
  const double magnitude = std::fabs(x);
  if (magnitude < 9.995) return fmt::format("{:.2f}", x);
  if (magnitude < 99.95) return fmt::format("{:.1f}", x);
  return fmt::format("{:.0f}", x);
}

// x in the largest unit that leaves at least 1 (after rounding to three digits), from units of `step` times each other.
template <std::size_t N>
std::string scaled(double x, double step, const std::array<std::string_view, N>& units) {
  std::size_t unit = 0;
  while (unit + 1 < N && std::fabs(x) >= step - 0.5) {
    x /= step;
    ++unit;
  }
  const std::string number = unit == 0 && x == std::floor(x) ? fmt::format("{:.0f}", x) : three_digits(x);
  return units[unit].empty() ? number : fmt::format("{} {}", number, units[unit]);
}

}  // namespace

std::int64_t parse_size(std::string_view field, std::string_view text) {
  std::string_view reason;
  const std::optional<std::int64_t> size = read_size(text, reason);
  if (!size) bad_input(field, text, reason, size_remedy);
  return *size;
}

std::vector<std::int64_t> parse_sizes(std::string_view field, std::string_view text) {
  std::vector<std::int64_t> sizes;
  constexpr std::size_t most = 1000;
  while (!text.empty()) {
    const auto comma = text.find(',');
    sizes.push_back(parse_size(field, text.substr(0, comma)));
    if (sizes.size() > most) bad_input(field, {}, fmt::format("has more than {} sizes", most), "give fewer");
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
    if (text.empty()) bad_input(field, text, "ends with a comma", "give sizes like 8K,128K,1M");
  }
  return sizes;
}

std::string format_size(std::int64_t size) {
  constexpr std::int64_t kilo = 1024, mega = 1024 * 1024;
  if (size > 0 && size % mega == 0) return fmt::format("{}M", size / mega);
  if (size > 0 && size % kilo == 0) return fmt::format("{}K", size / kilo);
  return fmt::format("{}", size);
}

bool canonical_size(std::string_view text) noexcept {
  std::string_view reason;
  const std::optional<std::int64_t> size = read_size(text, reason);
  return size && format_size(*size) == text;
}

std::uint64_t parse_uint64(std::string_view field, std::string_view text) {
  constexpr std::string_view remedy = "give decimal digits, 0 to 18446744073709551615";
  if (text.empty()) bad_input(field, text, "is empty", remedy);
  if (text.front() == '-') bad_input(field, text, "is negative", remedy);
  if (!all_digits(text)) bad_input(field, text, "is not a whole number", remedy);
  if (has_leading_zero(text)) bad_input(field, text, "has a leading zero", remedy);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) bad_input(field, text, "is too large", remedy);
  return value;
}

double parse_seconds(std::string_view field, std::string_view text) {
  constexpr std::string_view remedy = "give seconds, more than 0 and at most 604800 (a week)";
  constexpr double longest = 604800;
  // from_chars would also take inf, nan and a minus sign; what starts with neither digit nor point is no duration.
  const bool plausible = !text.empty() && (all_digits(text.substr(0, 1)) || text.front() == '.');
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty()) bad_input(field, text, "is empty", remedy);
  if (text.front() == '-') bad_input(field, text, "is negative", remedy);
  if (!plausible || error == std::errc::invalid_argument || end != text.data() + text.size())
    bad_input(field, text, "is not a number of seconds", remedy);
  if (error != std::errc{} || !(value > 0) || value > longest) bad_input(field, text, "is out of range", remedy);
  return value;
}

std::string format_count(double count) {
  if (!std::isfinite(count)) return fmt::format("{}", count);
  return scaled(count, 1000, std::array<std::string_view, 6>{"", "k", "M", "G", "T", "P"});
}

std::string format_duration_s(double seconds) {
  if (!std::isfinite(seconds)) return fmt::format("{}", seconds);
  if (seconds < 0) return "-" + format_duration_s(-seconds);
  if (seconds == 0) return "0 s";
  if (seconds < 59.95) {
    if (seconds >= 0.9995) return three_digits(seconds) + " s";
    return scaled(seconds * 1e9, 1000, std::array<std::string_view, 3>{"ns", "us", "ms"});
  }
  const double whole = std::round(seconds);
  const double minutes = std::floor(whole / 60);
  if (minutes < 60) return fmt::format("{:.0f} min {:.0f} s", minutes, whole - 60 * minutes);
  const double whole_minutes = std::round(whole / 60);
  const double hours = std::floor(whole_minutes / 60);
  return fmt::format("{:.0f} h {:02.0f} min", hours, whole_minutes - 60 * hours);
}

std::string format_bytes(double bytes) {
  if (!std::isfinite(bytes)) return fmt::format("{}", bytes);
  return scaled(bytes, 1024, std::array<std::string_view, 6>{"B", "KiB", "MiB", "GiB", "TiB", "PiB"});
}

}  // namespace msabench

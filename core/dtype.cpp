// SPDX-License-Identifier: Apache-2.0
#include "core/dtype.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "core/error.h"
#include "core/number_format.h"

namespace msabench {
namespace {

struct named_dtype {
  dtype type;
  std::string_view name;
};

constexpr named_dtype all[] = {{bf16, "bf16"}, {fp16, "fp16"}, {fp32, "fp32"}, {fp64, "fp64"},
                               {e4m3, "e4m3"}, {i32, "i32"},   {tf32, "tf32"}, {fp8_acc, "fp8acc"}};

[[noreturn]] void no_such_format(dtype type, std::string_view use) {
  throw suite_error(
      fmt::format("dtype {{{},{},{}}} ({}) can't be used {}", type.code, type.bits, type.lanes, name(type), use));
}

const detail::number_format& format_of(dtype type) {
  if (type == bf16) return detail::bf16_format;
  if (type == fp16) return detail::fp16_format;
  if (type == fp32) return detail::fp32_format;
  if (type == fp64) return detail::fp64_format;
  if (type == e4m3) return detail::e4m3_format;
  if (type == tf32) return detail::tf32_format;
  if (type == fp8_acc) return detail::fp8_acc_format;
  no_such_format(type, "as a floating-point format");
}

// Nearest integer, ties to even, whatever the rounding mode; within int32 the fraction is exact.
double round_to_i32(double x) {
  if (std::isnan(x)) return x;
  x = std::clamp(x, -2147483648.0, 2147483647.0);
  const double below = std::floor(x);
  const double rest = x - below;
  const bool odd = std::fmod(below, 2.0) != 0;
  return std::copysign(rest > 0.5 || (rest == 0.5 && odd) ? below + 1 : below, x);
}

template <class T>
T element(const void* base, std::int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(base) + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <class T>
void put_element(void* base, std::int64_t index, T value) {
  std::memcpy(static_cast<std::byte*>(base) + index * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

}  // namespace

bool known(dtype type) noexcept {
  return std::any_of(std::begin(all), std::end(all), [&](const named_dtype& n) { return n.type == type; });
}

bool is_stored(dtype type) noexcept { return known(type) && type != tf32 && type != fp8_acc; }

std::string_view name(dtype type) noexcept {
  for (const named_dtype& n : all)
    if (n.type == type) return n.name;
  return type.bits == 0 ? "none" : "unknown";
}

std::optional<dtype> dtype_from_name(std::string_view text) noexcept {
  for (const named_dtype& n : all)
    if (n.name == text) return n.type;
  return std::nullopt;
}

std::int64_t size_bytes(dtype type) {
  if (!is_stored(type)) no_such_format(type, "in memory");
  return type.bits / 8;
}

double unit_roundoff(dtype type) {
  if (type == i32) return 0;
  if (type == fp8_acc) return 0x1p-13;
  return std::ldexp(1.0, -format_of(type).precision);
}

double max_finite(dtype type) {
  if (type == i32) return std::numeric_limits<std::int32_t>::max();
  return detail::decode_magnitude(format_of(type).max_code(), format_of(type));
}

double smallest_subnormal(dtype type) {
  if (type == i32) return 1;
  return std::ldexp(1.0, format_of(type).min_exponent - format_of(type).fraction_bits());
}

double ulp_of(double x, dtype type) {
  if (std::isnan(x)) return x;
  if (type == i32) return 1;
  const detail::number_format& f = format_of(type);
  if (x == 0) return smallest_subnormal(type);
  const int exponent = std::isinf(x) ? f.max_exponent : std::clamp(std::ilogb(x), f.min_exponent, f.max_exponent);
  return std::ldexp(1.0, exponent - f.fraction_bits());
}

double round_to(double x, dtype type) {
  if (type == fp64) return x;
  if (type == i32) return round_to_i32(x);
  const detail::number_format& f = format_of(type);
  return std::copysign(detail::decode_magnitude(detail::encode_magnitude(x, f), f), x);
}

double load(const void* base, dtype type, std::int64_t index) {
  if (type == bf16) return bf16_to_float(element<std::uint16_t>(base, index));
  if (type == fp16) return fp16_to_float(element<std::uint16_t>(base, index));
  if (type == fp32) return element<float>(base, index);
  if (type == fp64) return element<double>(base, index);
  if (type == e4m3) return e4m3_to_float(element<std::uint8_t>(base, index));
  if (type == i32) return element<std::int32_t>(base, index);
  no_such_format(type, "in memory");
}

void store(void* base, dtype type, std::int64_t index, double x) {
  if (type == bf16) return put_element(base, index, bf16_from_double(x));
  if (type == fp16) return put_element(base, index, fp16_from_double(x));
  if (type == fp32) return put_element(base, index, detail::encode<std::uint32_t>(x, detail::fp32_format));
  if (type == fp64) return put_element(base, index, x);
  if (type == e4m3) return put_element(base, index, e4m3_from_double(x));
  if (type != i32) no_such_format(type, "in memory");
  if (std::isnan(x)) throw suite_error("NaN can't be stored as an integer");
  put_element(base, index, static_cast<std::int32_t>(round_to_i32(x)));
}

std::uint16_t bf16_from_double(double x) noexcept { return detail::encode<std::uint16_t>(x, detail::bf16_format); }
std::uint16_t fp16_from_double(double x) noexcept { return detail::encode<std::uint16_t>(x, detail::fp16_format); }
std::uint8_t e4m3_from_double(double x) noexcept { return detail::encode<std::uint8_t>(x, detail::e4m3_format); }

}  // namespace msabench

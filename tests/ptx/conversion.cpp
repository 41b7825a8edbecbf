// SPDX-License-Identifier: Apache-2.0
// cvt: between numbers of any types, rounding, saturating.
#include <cfenv>
#include <cmath>
#include <limits>

#include "tests/ptx/halves.h"
#include "tests/ptx/machine.h"

namespace msabench::ptx {
namespace {

enum rounding { nearest, zero, down, up };

bool is_whole(type t) { return t != type::f16 && t != type::bf16 && t != type::f32 && t != type::f64; }
bool is_signed(type t) { return t == type::s8 || t == type::s16 || t == type::s32 || t == type::s64; }

std::int64_t extended(std::uint64_t x, type t) {
  switch (bits_of(t)) {
    case 8:
      return is_signed(t) ? std::int64_t{static_cast<std::int8_t>(x)} : std::int64_t{static_cast<std::uint8_t>(x)};
    case 16:
      return is_signed(t) ? std::int64_t{static_cast<std::int16_t>(x)} : std::int64_t{static_cast<std::uint16_t>(x)};
    case 32:
      return is_signed(t) ? std::int64_t{static_cast<std::int32_t>(x)} : std::int64_t{static_cast<std::uint32_t>(x)};
    default:
      return static_cast<std::int64_t>(x);
  }
}

double real_of(std::uint64_t x, type t) {
  switch (t) {
    case type::f16:
      return from_half(as<std::uint16_t>(x));
    case type::bf16:
      return from_bfloat(as<std::uint16_t>(x));
    case type::f32:
      return as<float>(x);
    default:
      return as<double>(x);
  }
}

std::uint64_t cut(std::uint64_t x, type t) { return bits_of(t) == 64 ? x : x & ((std::uint64_t{1} << bits_of(t)) - 1); }

double to_whole(double x, int how) {
  switch (how) {
    case zero:
      return std::trunc(x);
    case down:
      return std::floor(x);
    case up:
      return std::ceil(x);
    default:
      return std::nearbyint(x);
  }
}

/// A real value in 16 bits, toward zero if asked for; bfloat by cutting the bits of fp32.
std::uint64_t short_of(double x, type t, int how) {
  if (t == type::f16) {
    std::uint16_t h = to_half(x);
    if (how == zero && std::fabs(from_half(h)) > std::fabs(x)) --h;
    return h;
  }
  const auto f = static_cast<float>(x);
  return how == zero ? bits(f) >> 16 : to_bfloat(f);
}

template <class T>
std::uint64_t clamped(double x) {
  if (x != x) return 0;
  constexpr double low = static_cast<double>(std::numeric_limits<T>::min());
  constexpr double high = static_cast<double>(std::numeric_limits<T>::max());
  if (x <= low) return bits(std::numeric_limits<T>::min());
  if (x >= high) return bits(std::numeric_limits<T>::max());
  return bits(static_cast<T>(x));
}

std::uint64_t whole_of(double x, type t) {
  switch (t) {
    case type::s8:
      return clamped<std::int8_t>(x);
    case type::u8:
      return clamped<std::uint8_t>(x);
    case type::s16:
      return clamped<std::int16_t>(x);
    case type::u16:
      return clamped<std::uint16_t>(x);
    case type::s32:
      return clamped<std::int32_t>(x);
    case type::u32:
      return clamped<std::uint32_t>(x);
    case type::s64:
      return clamped<std::int64_t>(x);
    default:
      return clamped<std::uint64_t>(x);
  }
}

// number: how it rounds; second: 1 saturates, 2 relu
std::uint64_t converted(const instruction& i, std::uint64_t x) {
  const auto how = static_cast<int>(i.number & 3);
  if (is_whole(i.from) && is_whole(i.of)) {
    const std::int64_t value = extended(x, i.from);
    if (i.second & 1) {
      if (i.from == type::u64 && value < 0) return whole_of(0x1p64, i.of);
      return whole_of(static_cast<double>(value), i.of);  // to at most 32 bits
    }
    return cut(static_cast<std::uint64_t>(value), i.of);
  }
  if (is_whole(i.from)) {
    const std::int64_t value = extended(x, i.from);
    const bool huge = i.from == type::u64 && value < 0;
    std::fesetround(how == zero ? FE_TOWARDZERO : how == down ? FE_DOWNWARD : how == up ? FE_UPWARD : FE_TONEAREST);
    std::uint64_t out = 0;
    volatile std::int64_t now = value;
    const std::int64_t v = now;
    if (i.of == type::f32)
      out = bits(huge ? static_cast<float>(static_cast<std::uint64_t>(v)) : static_cast<float>(v));
    else if (i.of == type::f64)
      out = bits(huge ? static_cast<double>(static_cast<std::uint64_t>(v)) : static_cast<double>(v));
    else
      out = short_of(static_cast<double>(v), i.of, how);
    std::fesetround(FE_TONEAREST);
    return out;
  }
  double value = real_of(x, i.from);
  if (is_whole(i.of)) return whole_of(to_whole(value, how), i.of);
  if (i.number & 4) value = to_whole(value, how);  // cvt.rzi.f32.f32
  if (i.second & 1) value = !(value > 0) ? 0 : value > 1 ? 1 : value;
  if ((i.second & 2) && !(value > 0)) value = value != value ? value : 0;
  switch (i.of) {
    case type::f16:
    case type::bf16:
      return short_of(value, i.of, how);
    case type::f64:
      return bits(value);
    default:
      break;
  }
  float f = static_cast<float>(value);
  if (how == zero && std::fabs(static_cast<double>(f)) > std::fabs(value)) f = std::nextafter(f, 0.0f);
  if (how == down && f > value) f = std::nextafter(f, -INFINITY);
  if (how == up && f < value) f = std::nextafter(f, INFINITY);
  return bits(f);
}

void convert(warp& w, const instruction& i, std::uint32_t mask) {
  const lane_values a = w.value(i, 1);
  std::uint64_t* const to = w.result(i, 0);
  for_lanes(mask, [&](int l) { to[l] = converted(i, a[l]); });
}

template <class From, class To>
void extend(warp& w, const instruction& i, std::uint32_t mask) {
  const lane_values a = w.value(i, 1);
  std::uint64_t* const to = w.result(i, 0);
  for_lanes(mask, [&](int l) { to[l] = bits(static_cast<To>(as<From>(a[l]))); });
}

/// Two numbers into 16 or 8 bits each; the first operand goes to the upper half.
void convert_pair(warp& w, const instruction& i, std::uint32_t mask) {
  const lane_values a = w.value(i, 1), b = w.value(i, 2);
  std::uint64_t* const to = w.result(i, 0);
  const auto how = static_cast<int>(i.number & 3);
  const bool relu = i.second & 2;
  for_lanes(mask, [&](int l) {
    float high = as<float>(a[l]), low = as<float>(b[l]);
    if (relu) high = high > 0 || high != high ? high : 0, low = low > 0 || low != low ? low : 0;
    if (i.of == type::e4m3x2)
      to[l] = static_cast<std::uint64_t>(to_e4m3(high)) << 8 | to_e4m3(low);
    else {
      const type t = i.of == type::f16x2 ? type::f16 : type::bf16;
      to[l] = short_of(high, t, how) << 16 | short_of(low, t, how);
    }
  });
}

void from_e4m3_pair(warp& w, const instruction& i, std::uint32_t mask) {
  const lane_values a = w.value(i, 1);
  std::uint64_t* const to = w.result(i, 0);
  for_lanes(mask, [&](int l) {
    to[l] = static_cast<std::uint64_t>(to_half(from_e4m3(static_cast<std::uint8_t>(a[l] >> 8)))) << 16 |
            to_half(from_e4m3(static_cast<std::uint8_t>(a[l])));
  });
}

}  // namespace

handler conversion_handler(instruction& i) {
  if (i.words[0] != "cvt") return nullptr;
  std::vector<type> types;
  for (std::size_t n = 1; n < i.words.size(); ++n)
    if (const type t = type_named(i.words[n]); t != type::none) types.push_back(t);
  if (types.size() < 2) return nullptr;
  i.of = types[0];
  i.from = types[1];
  for (const auto& [word, value] :
       {std::pair{"rz", 1}, {"rm", 2}, {"rp", 3}, {"rni", 4}, {"rzi", 5}, {"rmi", 6}, {"rpi", 7}})
    if (has_word(i, word)) i.number = value;
  i.second = (has_word(i, "sat") ? 1 : 0) | (has_word(i, "relu") ? 2 : 0);
  if (has_word(i, "satfinite") && i.of != type::e4m3x2) return nullptr;
  if (i.from == type::e4m3x2) return i.of == type::f16x2 ? from_e4m3_pair : nullptr;
  if (i.of == type::f16x2 || i.of == type::bf16x2 || i.of == type::e4m3x2)
    return i.from == type::f32 ? convert_pair : nullptr;
  if (i.of == type::tf32) return nullptr;
  if (i.second == 0) {
    if (i.of == type::s64 && i.from == type::s32) return extend<std::int32_t, std::int64_t>;
    if (i.of == type::u64 && i.from == type::u32) return extend<std::uint32_t, std::uint64_t>;
    if (i.of == type::u32 && i.from == type::u64) return extend<std::uint64_t, std::uint32_t>;
    if (i.of == type::f64 && i.from == type::f32) return extend<float, double>;
    if (i.of == type::f32 && i.from == type::s32 && (i.number & 3) == 0) return extend<std::int32_t, float>;
    if (i.of == type::f32 && i.from == type::bf16)
      return [](warp& w, const instruction& n, std::uint32_t mask) {
        const lane_values a = w.value(n, 1);
        std::uint64_t* const to = w.result(n, 0);
        for_lanes(mask, [&](int l) { to[l] = (a[l] & 0xffff) << 16; });
      };
  }
  return convert;
}

}  // namespace msabench::ptx

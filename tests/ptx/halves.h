// SPDX-License-Identifier: Apache-2.0
// 16-bit and 8-bit numbers, computed in fp32 and rounded once.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace msabench::ptx {

inline std::uint16_t to_bfloat(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  if (x != x) return 0x7fff;
  return static_cast<std::uint16_t>((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
inline float from_bfloat(std::uint16_t x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16); }

inline std::uint16_t to_half(double x) {
  const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (x != x) return 0x7fff;
  const double a = std::fabs(x);
  if (a >= 65520) return static_cast<std::uint16_t>(sign | 0x7c00);
  const int exponent = a < 0x1p-14 ? -14 : std::ilogb(a);
  const double unit = std::ldexp(1.0, exponent - 10);
  const auto steps = static_cast<std::uint32_t>(std::nearbyint(a / unit));
  // 1024 steps and more have the leading bit that is not stored; 2048 carry into the exponent.
  const std::uint32_t value = static_cast<std::uint32_t>(exponent + 14) * 1024 + steps;
  return static_cast<std::uint16_t>(sign | value);
}
inline float from_half(std::uint16_t x) {
  const int exponent = x >> 10 & 31, fraction = x & 1023;
  float value = 0;
  if (exponent == 31)
    value = fraction != 0 ? NAN : INFINITY;
  else
    value = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                          : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  return x & 0x8000 ? -value : value;
}

/// e4m3: 448 the greatest, no infinity
inline float from_e4m3(std::uint8_t x) {
  const int exponent = x >> 3 & 15, fraction = x & 7;
  float value = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                              : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
  if (exponent == 15 && fraction == 7) value = NAN;
  return x & 0x80 ? -value : value;
}
inline std::uint8_t to_e4m3(float x) {
  const std::uint8_t sign = std::signbit(x) ? 0x80 : 0;
  if (x != x) return 0x7f;
  const float a = std::fabs(x);
  if (a >= 448) return static_cast<std::uint8_t>(sign | 0x7e);
  const int exponent = a < 0x1p-6f ? -6 : std::ilogb(a);
  const auto steps = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(a, 3 - exponent)));
  return static_cast<std::uint8_t>(sign | (static_cast<std::uint32_t>(exponent + 6) * 8 + steps));
}

struct half_bits {
  std::uint16_t u;
  half_bits() = default;
  explicit half_bits(double x) : u(to_half(x)) {}
  explicit operator float() const { return from_half(u); }
};
struct bfloat_bits {
  std::uint16_t u;
  bfloat_bits() = default;
  explicit bfloat_bits(float x) : u(to_bfloat(x)) {}
  explicit operator float() const { return from_bfloat(u); }
};

template <class T>
concept short_number = std::is_same_v<T, half_bits> || std::is_same_v<T, bfloat_bits>;

template <short_number T>
T operator+(T a, T b) {
  return T(static_cast<float>(a) + static_cast<float>(b));
}
template <short_number T>
T operator-(T a, T b) {
  return T(static_cast<float>(a) - static_cast<float>(b));
}
template <short_number T>
T operator*(T a, T b) {
  return T(static_cast<float>(a) * static_cast<float>(b));
}
template <short_number T>
T operator-(T a) {
  a.u ^= 0x8000;
  return a;
}
template <short_number T>
bool operator<(T a, T b) {
  return static_cast<float>(a) < static_cast<float>(b);
}
template <short_number T>
bool operator>(T a, T b) {
  return static_cast<float>(a) > static_cast<float>(b);
}
template <short_number T>
bool operator<=(T a, T b) {
  return static_cast<float>(a) <= static_cast<float>(b);
}
template <short_number T>
bool operator>=(T a, T b) {
  return static_cast<float>(a) >= static_cast<float>(b);
}
template <short_number T>
bool operator==(T a, T b) {
  return static_cast<float>(a) == static_cast<float>(b);
}

inline float fma_of(float a, float b, float c) { return std::fma(a, b, c); }
inline double fma_of(double a, double b, double c) { return std::fma(a, b, c); }
// Products of 16-bit numbers are exact in double, and so are sums to more than is kept.
template <short_number T>
T fma_of(T a, T b, T c) {
  return T(
      static_cast<float>(static_cast<double>(static_cast<float>(a)) * static_cast<float>(b) + static_cast<float>(c)));
}

inline bool is_nan(float x) { return x != x; }
inline bool is_nan(double x) { return x != x; }
template <short_number T>
bool is_nan(T x) {
  return is_nan(static_cast<float>(x));
}
inline bool sign_of(float x) { return std::signbit(x); }
inline bool sign_of(double x) { return std::signbit(x); }
template <short_number T>
bool sign_of(T x) {
  return x.u >> 15 & 1;
}
inline float abs_of(float x) { return std::fabs(x); }
inline double abs_of(double x) { return std::fabs(x); }
template <short_number T>
T abs_of(T x) {
  x.u &= 0x7fff;
  return x;
}

/// Two numbers in 32 bits, the first in the lower half.
template <short_number T>
struct pair_of {
  T low, high;

  template <class F>
  pair_of map(F f) const {
    return {f(low), f(high)};
  }
  template <class F>
  pair_of with(pair_of b, F f) const {
    return {f(low, b.low), f(high, b.high)};
  }
  friend pair_of operator+(pair_of a, pair_of b) { return {a.low + b.low, a.high + b.high}; }
  friend pair_of operator-(pair_of a, pair_of b) { return {a.low - b.low, a.high - b.high}; }
  friend pair_of operator*(pair_of a, pair_of b) { return {a.low * b.low, a.high * b.high}; }
  friend pair_of operator-(pair_of a) { return {-a.low, -a.high}; }
};
template <class T>
pair_of<T> fma_of(pair_of<T> a, pair_of<T> b, pair_of<T> c) {
  return {fma_of(a.low, b.low, c.low), fma_of(a.high, b.high, c.high)};
}
template <class T>
pair_of<T> abs_of(pair_of<T> a) {
  return {abs_of(a.low), abs_of(a.high)};
}

}  // namespace msabench::ptx

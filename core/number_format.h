// SPDX-License-Identifier: Apache-2.0
// The binary formats behind dtype as parameters, and their one encoder and decoder. Private to core's sources.
//
// A code is the format's bits without container: sign, exponent field, precision - 1 fraction bits.
#pragma once

#include <bit>
#include <cstdint>

#include "core/dtype.h"

namespace msabench::detail {

struct number_format {
  int precision = 0;  // significand bits, the hidden one included
  int min_exponent = 0, max_exponent = 0;
  bool has_infinity = true;

  constexpr int fraction_bits() const { return precision - 1; }
  // The largest finite code. Without infinity the code above it is the NaN.
  constexpr std::uint64_t max_code() const {
    const auto top = static_cast<std::uint64_t>(max_exponent - min_exponent + 2) << fraction_bits();
    return has_infinity ? top - 1 : top - 2;
  }
  constexpr std::uint64_t nan_code() const {
    return has_infinity ? (max_code() + 1) | (std::uint64_t{1} << (precision - 2)) : max_code() + 1;
  }
  constexpr std::uint64_t overflow_code() const { return max_code() + 1; }
};

inline constexpr number_format bf16_format{8, -126, 127};
inline constexpr number_format fp16_format{11, -14, 15};
inline constexpr number_format tf32_format{11, -126, 127};
inline constexpr number_format fp8_acc_format{14, -126, 127};
inline constexpr number_format fp32_format{24, -126, 127};
inline constexpr number_format fp64_format{53, -1022, 1023};
inline constexpr number_format e4m3_format{4, -6, 8, false};

// |x| as a code, rounded to nearest even. Not for fp64, whose subnormals are those of x itself.
constexpr std::uint64_t encode_magnitude(double x, const number_format& f) {
  constexpr std::uint64_t infinity = std::uint64_t{0x7ff} << 52;
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x) & ~(std::uint64_t{1} << 63);
  if (bits >= infinity) return bits == infinity ? f.overflow_code() : f.nan_code();
  const int exponent = static_cast<int>(bits >> 52) - 1023;
  const bool subnormal = exponent < f.min_exponent;
  const int dropped = 53 - f.precision + (subnormal ? f.min_exponent - exponent : 0);
  // A double below half the smallest subnormal, its own subnormals included, leaves nothing even after rounding.
  if (dropped > 53) return 0;
  const std::uint64_t significand = (bits & ((std::uint64_t{1} << 52) - 1)) | (std::uint64_t{1} << 52);
  const std::uint64_t floor = significand >> dropped;
  const std::uint64_t rest = significand & ((std::uint64_t{1} << dropped) - 1);
  const std::uint64_t half = std::uint64_t{1} << (dropped - 1);
  const std::uint64_t rounded = floor + (rest > half || (rest == half && (floor & 1)) ? 1 : 0);
  // The hidden bit counts as one exponent step, so a carry out of the fraction lands in the exponent by itself.
  const std::uint64_t code =
      subnormal ? rounded : (static_cast<std::uint64_t>(exponent - f.min_exponent) << f.fraction_bits()) + rounded;
  return code > f.max_code() ? f.overflow_code() : code;
}

constexpr double decode_magnitude(std::uint64_t code, const number_format& f) {
  constexpr std::uint64_t infinity = std::uint64_t{0x7ff} << 52;
  if (code > f.max_code())
    return std::bit_cast<double>(f.has_infinity && code == f.overflow_code() ? infinity
                                                                             : infinity | (std::uint64_t{1} << 51));
  const std::uint64_t fraction = code & ((std::uint64_t{1} << f.fraction_bits()) - 1);
  const std::uint64_t exponent_field = code >> f.fraction_bits();
  const auto power = [](int exponent) {
    return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
  };
  if (exponent_field == 0) return static_cast<double>(fraction) * power(f.min_exponent - f.fraction_bits());
  const int exponent = static_cast<int>(exponent_field) - 1 + f.min_exponent;
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52 | fraction << (53 - f.precision));
}

constexpr bool sign_bit(double x) { return std::bit_cast<std::uint64_t>(x) >> 63 != 0; }

// The bits of a format whose container has no padding: all stored ones.
template <class Container>
constexpr Container encode(double x, const number_format& f) {
  constexpr int sign_shift = static_cast<int>(sizeof(Container)) * 8 - 1;
  return static_cast<Container>(encode_magnitude(x, f) | static_cast<std::uint64_t>(sign_bit(x)) << sign_shift);
}

}  // namespace msabench::detail

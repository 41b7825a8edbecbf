// SPDX-License-Identifier: Apache-2.0
// Number formats: names, sizes, roundoffs, exact decoding and correctly rounded encoding.
//
// A dtype is a DLPack 1.1 triple. Two formats exist in declarations of numerics only and are never stored: tf32 {2,19}
// and fp8_acc {2,22}, the accumulator of fp8 matrix instructions. Every function but name() and known() throws
// suite_error for a triple that known() refuses, and the storage functions (size_bytes, load, store, widen) for one
// that is not stored.
//
// Rounding is to nearest, ties to even, directly from double: there is no intermediate float, hence no double rounding.
// It is done in integer arithmetic, so that a changed floating-point mode (a plugin linked with -ffast-math) can't
// change it. Overflow follows IEEE 754: bf16, fp16, fp32 and tf32 go to infinity. e4m3 ("fn") has no infinity: what
// rounds beyond 448 (above 464) and infinities become NaN; nothing saturates. NaN stays a quiet NaN of the same sign;
// its payload is not kept.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace msabench {

// DLPack codes: 0 int, 2 float, 4 bfloat, 10 e4m3fn.
struct dtype {
  std::uint8_t code = 0, bits = 0;
  std::uint16_t lanes = 1;
  friend bool operator==(const dtype&, const dtype&) = default;
};

inline constexpr dtype i32{0, 32, 1};
inline constexpr dtype fp16{2, 16, 1};
inline constexpr dtype tf32{2, 19, 1};
inline constexpr dtype fp8_acc{2, 22, 1};
inline constexpr dtype fp32{2, 32, 1};
inline constexpr dtype fp64{2, 64, 1};
inline constexpr dtype bf16{4, 16, 1};
inline constexpr dtype e4m3{10, 8, 1};

// One of the eight formats above. Declarations of foreign code are asked this before anything else.
bool known(dtype type) noexcept;
// Can lie in memory: known, and neither tf32 nor fp8_acc.
bool is_stored(dtype type) noexcept;

// bf16, fp16, fp32, fp64, e4m3, i32, tf32, fp8acc; "none" for bits = 0, "unknown" for anything else.
std::string_view name(dtype type) noexcept;
std::optional<dtype> dtype_from_name(std::string_view text) noexcept;

std::int64_t size_bytes(dtype type);

// Unit roundoff of rounding to nearest: fp32 2^-24, fp16 and tf32 2^-11, bf16 2^-8, e4m3 2^-4, fp64 2^-53, i32 0.
// fp8_acc is 2^-13: it keeps 13 bits after the binary point and truncates, which counts double.
double unit_roundoff(dtype type);
double max_finite(dtype type);
// Smallest positive value; 1 for i32.
double smallest_subnormal(dtype type);
// Spacing of the format's values at |x|, in the binade of x: 2^(floor(log2|x|) - p + 1), not below smallest_subnormal.
// Beyond max_finite (and for infinities) the spacing of the top binade; NaN for NaN.
double ulp_of(double x, dtype type);

// x rounded to the format; see above for overflow. i32: to the nearest integer, saturating at its ends.
double round_to(double x, dtype type);

// Element `index` of an array of stored elements at `base` (no alignment asked). Exact.
double load(const void* base, dtype type, std::int64_t index);
// Stores round_to(x, type). i32: NaN is a suite_error, as it has no encoding.
void store(void* base, dtype type, std::int64_t index, double x);

// Elements first .. first + count - 1 of the array at src, widened to dst[0 .. count-1]. To float: exact for 8- and
// 16-bit formats and fp32; fp64 and i32 are refused (suite_error), as they would be rounded. Vectorized; src needs no
// alignment.
void widen(const void* src, dtype type, std::int64_t first, std::int64_t count, double* dst);
void widen(const void* src, dtype type, std::int64_t first, std::int64_t count, float* dst);
// Inverse of widen: src[0 .. count-1] rounded as by store into elements first .. first + count - 1 of the array at dst.
void narrow(const double* src, std::int64_t count, void* dst, dtype type, std::int64_t first);

inline float bf16_to_float(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

inline float fp16_to_float(std::uint16_t bits) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t magnitude = bits & 0x7fffu;
  // Subnormals m * 2^-24 as (1 + m/1024) 2^-14 - 2^-14: no float subnormal is touched, so flush-to-zero modes are
  // harmless.
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>((113u << 23) | (magnitude << 13)) - 0x1p-14f);
  const std::uint32_t finite = (magnitude << 13) + (112u << 23);
  const std::uint32_t special = (magnitude << 13) | 0x7f800000u;
  const std::uint32_t wide = magnitude >= 0x7c00u ? special : magnitude < 0x400u ? subnormal : finite;
  return std::bit_cast<float>(wide | sign);
}

inline float e4m3_to_float(std::uint8_t bits) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x80u) << 24;
  const std::uint32_t magnitude = bits & 0x7fu;
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>((121u << 23) | (magnitude << 20)) - 0x1p-6f);
  const std::uint32_t finite = (magnitude << 20) + (120u << 23);
  const std::uint32_t wide = magnitude == 0x7fu ? 0x7fc00000u : magnitude < 8u ? subnormal : finite;
  return std::bit_cast<float>(wide | sign);
}

std::uint16_t bf16_from_double(double x) noexcept;
std::uint16_t fp16_from_double(double x) noexcept;
std::uint8_t e4m3_from_double(double x) noexcept;

}  // namespace msabench

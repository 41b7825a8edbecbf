// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/storage.h"

#include <bit>
#include <cstring>

namespace msabench::kernels {
namespace {

float widen_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

std::uint16_t round_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  // Rounding up could carry a NaN with a full payload into infinity; setting its quiet bit keeps it a NaN.
  if (value != value) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

constexpr std::uint32_t fp32_infinity = 0x7f800000u, fp32_sign = 0x80000000u;
constexpr std::uint32_t exponent_shift = (127u - 15u) << 23;  // between the biases of fp32 and fp16

float widen_fp16(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16, magnitude = half & 0x7fffu;
  if (magnitude < 0x400u) {
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
  }
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | fp32_infinity | (magnitude & 0x3ffu) << 13);
  return std::bit_cast<float>(sign | ((magnitude << 13) + exponent_shift));
}

std::uint16_t round_to_fp16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits & fp32_sign) >> 16, magnitude = bits & ~fp32_sign;
  std::uint32_t half = 0;
  if (magnitude > fp32_infinity) {
    half = 0x7e00u | (magnitude >> 13 & 0x3ffu);
  } else if (magnitude >= 0x47800000u) {  // 65536
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // below the normal range: adding 1/2 makes the last place 2^-24
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - std::bit_cast<std::uint32_t>(0.5f);
  } else {  // a carry out of the mantissa raises the exponent, at 65520 to infinity
    half = (magnitude - exponent_shift + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  }
  return static_cast<std::uint16_t>(sign | half);
}

// 4 bits of exponent, bias 7; no infinity, and all bits of the magnitude set is NaN.
float widen_e4m3(std::uint8_t bits) {
  const std::uint32_t sign = (bits & 0x80u) << 24, magnitude = bits & 0x7fu;
  if (magnitude == 0x7fu) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (magnitude < 8u) {
    const float value = static_cast<float>(magnitude) * 0x1p-9f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
  }
  return std::bit_cast<float>(sign | ((magnitude << 20) + ((127u - 7u) << 23)));
}

template <auto Widen, class Bits = std::uint16_t>
void load(const void* from, std::int64_t count, float* to) {
  const auto* bits = static_cast<const Bits*>(from);
  for (std::int64_t i = 0; i < count; ++i) to[i] = Widen(bits[i]);
}

template <std::uint16_t (*Round)(float)>
void store(const float* from, std::int64_t count, void* to) {
  auto* bits = static_cast<std::uint16_t*>(to);
  for (std::int64_t i = 0; i < count; ++i) bits[i] = Round(from[i]);
}

}  // namespace

void load_row(const void* from, msabench_dtype type, std::int64_t count, float* to) {
  if (same_type(type, bf16_type)) return load<widen_bf16>(from, count, to);
  if (same_type(type, fp16_type)) return load<widen_fp16>(from, count, to);
  if (same_type(type, e4m3_type)) return load<widen_e4m3, std::uint8_t>(from, count, to);
  std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
}

void store_row(const float* from, std::int64_t count, msabench_dtype type, void* to) {
  if (same_type(type, bf16_type)) return store<round_to_bf16>(from, count, to);
  if (same_type(type, fp16_type)) return store<round_to_fp16>(from, count, to);
  std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
}

}  // namespace msabench::kernels

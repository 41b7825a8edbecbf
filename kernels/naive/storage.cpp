// SPDX-License-Identifier: Apache-2.0
#include "kernels/naive/storage.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace msabench::naive {
namespace {

float widen_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

float widen_fp16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
  if (magnitude < 0x400u) return std::copysign(static_cast<float>(magnitude) * 0x1p-24f, std::bit_cast<float>(sign));
  const std::uint32_t wide = magnitude << 13;
  return std::bit_cast<float>(sign | (magnitude >= 0x7c00u ? wide | 0x7f800000u : wide + (112u << 23)));
}

std::uint16_t round_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  // Rounding up could carry a NaN with a full payload into infinity; setting its quiet bit keeps it a NaN.
  if (value != value) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

std::uint16_t round_to_fp16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  std::uint32_t rounded = 0x7c00u;  // what rounds to 2^16 and more
  if (value != value) {
    rounded = 0x7e00u;
  } else if (magnitude < 0x38800000u) {
    // Below 2^-14 the format's steps are 2^-24: those of fp32 between 0.5 and 1.
    rounded = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  } else if (magnitude < 0x477ff000u) {
    rounded = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  }
  return static_cast<std::uint16_t>(sign | rounded);
}

}  // namespace

void load_row(const void* from, msabench_dtype type, std::int64_t count, float* to) {
  if (same_type(type, fp32_type)) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  const auto* bits = static_cast<const std::uint16_t*>(from);
  if (same_type(type, fp16_type)) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = widen_fp16(bits[i]);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) to[i] = widen_bf16(bits[i]);
}

void store_row(const float* from, std::int64_t count, msabench_dtype type, void* to) {
  if (same_type(type, fp32_type)) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  auto* bits = static_cast<std::uint16_t*>(to);
  if (same_type(type, fp16_type)) {
    for (std::int64_t i = 0; i < count; ++i) bits[i] = round_to_fp16(from[i]);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) bits[i] = round_to_bf16(from[i]);
}

}  // namespace msabench::naive

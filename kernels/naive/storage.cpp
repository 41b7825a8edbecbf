// SPDX-License-Identifier: Apache-2.0
#include "kernels/naive/storage.h"

#include <bit>
#include <cstring>

namespace msabench::naive {
namespace {

float widen(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

std::uint16_t round_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  // Rounding up could carry a NaN with a full payload into infinity; setting its quiet bit keeps it a NaN.
  if (value != value) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace

void load_row(const void* from, msabench_dtype type, std::int64_t count, float* to) {
  if (same_type(type, fp32_type)) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  const auto* bits = static_cast<const std::uint16_t*>(from);
  for (std::int64_t i = 0; i < count; ++i) to[i] = widen(bits[i]);
}

void store_row(const float* from, std::int64_t count, msabench_dtype type, void* to) {
  if (same_type(type, fp32_type)) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  auto* bits = static_cast<std::uint16_t*>(to);
  for (std::int64_t i = 0; i < count; ++i) bits[i] = round_to_bf16(from[i]);
}

}  // namespace msabench::naive

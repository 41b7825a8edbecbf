// SPDX-License-Identifier: Apache-2.0
#include "core/poison.h"

#include <cstring>

#include "core/error.h"

namespace msabench {

namespace {

// A small number that differs between neighbouring launches and seeds.
std::uint64_t payload(int launch, std::uint64_t seed) {
  return (static_cast<std::uint64_t>(launch) * 2 + seed * 34 + 1) % 61 + 1;
}

}  // namespace

std::uint64_t poison_bits(dtype t, int launch, std::uint64_t seed) {
  const std::uint64_t p = payload(launch, seed);
  if (t == fp64) return 0x7FF8'0000'0000'0000ULL | (p << 32) | 0x5A5A'0000ULL | p;
  if (t == fp32) return 0x7FC0'0000U | (p << 8) | 0xA5U;
  if (t == bf16) return 0x7FC0U | (p & 0x3FU);
  if (t == fp16) return 0x7E00U | p;
  if (t == e4m3) return launch % 2 == 0 ? 0x7FU : 0xFFU;
  if (t == i32) {
    if (launch == 0) return 0x7F7F'7F7FU;
    if (launch == 1) return 0x8000'0001U;
    return 0x7000'0000U | (p << 8) | 0x55U;
  }
  throw suite_error("no poison for this type");
}

bool is_poison(const tensor_view& view, std::int64_t element_offset, int launch, std::uint64_t seed) {
  const std::int64_t size = size_bytes(view.desc.type);
  std::uint64_t bits = 0;
  // Little-endian, as every machine that this builds for.
  std::memcpy(&bits, static_cast<const std::byte*>(view.data) + element_offset * size, static_cast<std::size_t>(size));
  return bits == poison_bits(view.desc.type, launch, seed);
}

}  // namespace msabench

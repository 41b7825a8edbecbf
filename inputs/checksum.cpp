// SPDX-License-Identifier: Apache-2.0
#include "inputs/checksum.h"

#include <array>
#include <bit>
#include <cstring>

namespace msabench {

namespace {

constexpr std::uint64_t odd_factor = 0x9E3779B97F4A7C15u;

// A bijection of either argument while the other is fixed, so that nothing that went in can cancel out alone.
constexpr std::uint64_t mix(std::uint64_t state, std::uint64_t word) {
  return std::rotl((state ^ word) * odd_factor, 29);
}

}  // namespace

std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t before) {
  // Eight chains side by side hide the latency of the multiplication.
  constexpr std::size_t lanes = 8;
  std::array<std::uint64_t, lanes> state{};
  for (std::size_t l = 0; l < lanes; ++l) state[l] = before + l * odd_factor;
  std::size_t at = 0;
  for (; at + lanes * 8 <= bytes.size(); at += lanes * 8) {
    std::array<std::uint64_t, lanes> words;
    std::memcpy(words.data(), bytes.data() + at, sizeof words);
    for (std::size_t l = 0; l < lanes; ++l) state[l] = mix(state[l], words[l]);
  }
  std::uint64_t result = mix(before, bytes.size());
  for (const std::uint64_t s : state) result = mix(result, s);
  for (; at < bytes.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min<std::size_t>(8, bytes.size() - at));
    result = mix(result, word);
  }
  return result ^ (result >> 32);
}

}  // namespace msabench

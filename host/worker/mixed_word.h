// SPDX-License-Identifier: Apache-2.0
// What a word adds to the checksum of a region on a device (device_checksum.h). A sum does not depend on the order, so every
// thread has a part of it; that the place goes in tells words that have changed places.
#pragma once

#include <cstdint>

namespace msabench {

inline constexpr std::uint64_t place_factor = 0x9E3779B97F4A7C15u, first_factor = 0xBF58476D1CE4E5B9u,
                               second_factor = 0x94D049BB133111EBu;

// A bijection of `word` while the place, in bytes from the region's start, is fixed: one changed word always changes the sum.
constexpr std::uint64_t mixed_word(std::uint64_t word, std::uint64_t place) {
  std::uint64_t x = word + (place + 1) * place_factor;
  x = (x ^ x >> 30) * first_factor;
  x = (x ^ x >> 27) * second_factor;
  return x ^ x >> 31;
}

}  // namespace msabench

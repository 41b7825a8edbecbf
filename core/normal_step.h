// SPDX-License-Identifier: Apache-2.0
// From a random word to the step of a normal value (core/generator.h). Integers only, for the CPU and for devices.
#pragma once

#include <cstdint>

namespace msabench {

inline constexpr int most_normal_step = 510;
inline constexpr int normal_steps = 2 * most_normal_step + 1;  // different ones

// Sum of the word's four bytes - 510.
constexpr int normal_step_of(std::uint32_t word) noexcept {
  const std::uint32_t pairs = (word & 0x00ff00ffu) + ((word >> 8) & 0x00ff00ffu);
  return static_cast<int>((pairs & 0xffffu) + (pairs >> 16)) - most_normal_step;
}

}  // namespace msabench

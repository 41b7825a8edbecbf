// SPDX-License-Identifier: Apache-2.0
// Numbers that the tests of the judge share.
#pragma once

#include <cstdint>
#include <limits>
#include <random>

namespace msabench::judge::test {

inline constexpr double infinity = std::numeric_limits<double>::infinity();

// Sum of twelve uniform numbers: the same on every standard library, unlike std::normal_distribution.
inline double normal(std::mt19937& gen) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += static_cast<double>(gen() >> 8) * 0x1p-24;
  return sum;
}

}  // namespace msabench::judge::test

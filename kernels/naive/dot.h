// SPDX-License-Identifier: Apache-2.0
// The product that scores are made of.
#pragma once

#include <cstdint>

namespace msabench::naive {

/// Lanes are summed apart and then together: the vectoriser may not reorder a single running sum.
inline float dot(const float* a, const float* b, std::int32_t count) {
  constexpr std::int32_t lanes = 8;
  float sums[lanes] = {};
  std::int32_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    for (std::int32_t lane = 0; lane < lanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  for (; i < count; ++i) sums[i % lanes] += a[i] * b[i];
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

}  // namespace msabench::naive

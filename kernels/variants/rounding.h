// SPDX-License-Identifier: Apache-2.0
// Numbers as they are in shorter formats.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/common/storage.h"
#include "kernels/common/types.h"

namespace msabench::variants {

/// To nearest even, in a 16-bit type; fp32 stays.
inline float nearest(msabench_dtype type, float value) {
  if (type.bits != 16) return value;
  std::uint16_t stored = 0;
  kernels::store_row(&value, 1, type, &stored);
  kernels::load_row(&stored, type, 1, &value);
  return value;
}

/// Toward zero.
inline float truncated(msabench_dtype type, float value) {
  if (type.bits != 16) return value;
  std::uint16_t stored = 0;
  float result = 0;
  kernels::store_row(&value, 1, type, &stored);
  kernels::load_row(&stored, type, 1, &result);
  if (!(std::abs(result) > std::abs(value))) return result;
  --stored;  // one step nearer to zero, whatever the sign
  kernels::load_row(&stored, type, 1, &result);
  return result;
}

/// tf32: 10 bits behind the point, to nearest even.
inline float tf32(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return std::bit_cast<float>((bits + 0xfffu + ((bits >> 13) & 1u)) & 0xffffe000u);
}

}  // namespace msabench::variants

// SPDX-License-Identifier: Apache-2.0
// Loads and stores of 16-bit storage, over every bit pattern.
#include "kernels/common/storage.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/buffer.h"

namespace {

namespace kernels = msabench::kernels;
using msabench::plugin_test::from_fp16;
using msabench::plugin_test::to_fp16;

float loaded(msabench_dtype type, std::uint16_t bits) {
  float value = 0;
  kernels::load_row(&bits, type, 1, &value);
  return value;
}

std::uint16_t stored(msabench_dtype type, float value) {
  std::uint16_t bits = 0;
  kernels::store_row(&value, 1, type, &bits);
  return bits;
}

}  // namespace

TEST(storage, every_fp16_is_loaded_exactly_and_stored_back) {
  for (unsigned pattern = 0; pattern < 0x10000; ++pattern) {
    const auto bits = static_cast<std::uint16_t>(pattern);
    const float value = loaded(kernels::fp16_type, bits);
    const bool finite = (bits & 0x7c00) != 0x7c00, is_nan = !finite && (bits & 0x3ff) != 0;
    if (finite) {
      EXPECT_EQ(value, from_fp16(bits)) << pattern;
    }
    EXPECT_EQ(std::isnan(value), is_nan) << pattern;
    EXPECT_EQ(std::isinf(value), !finite && !is_nan) << pattern;
    if (is_nan) {
      EXPECT_TRUE(std::isnan(loaded(kernels::fp16_type, stored(kernels::fp16_type, value)))) << pattern;
    } else {
      EXPECT_EQ(stored(kernels::fp16_type, value), bits) << pattern;
    }
  }
}

// 1 + m/8 times 2^(e - 7), below the normal range m/8 times 2^-6; the largest magnitude is NaN, and none is infinite.
TEST(storage, every_e4m3_is_loaded_exactly) {
  for (unsigned bits = 0; bits < 256; ++bits) {
    const int exponent = static_cast<int>(bits >> 3 & 15), mantissa = static_cast<int>(bits & 7);
    const double size = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    const float value = loaded(kernels::e4m3_type, static_cast<std::uint16_t>(bits));
    EXPECT_EQ(std::isnan(value), (bits & 127) == 127) << bits;
    EXPECT_EQ(std::signbit(value), bits >= 128) << bits;
    EXPECT_TRUE(std::isnan(value) || std::abs(value) == size) << bits;
  }
}

TEST(storage, fp16_rounds_to_nearest_even) {
  for (unsigned pattern = 0; pattern < 0x7bff; ++pattern) {
    const double low = from_fp16(static_cast<std::uint16_t>(pattern));
    const double high = from_fp16(static_cast<std::uint16_t>(pattern + 1));
    const auto middle = static_cast<float>((low + high) / 2);
    for (const float value : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f), -middle})
      EXPECT_EQ(stored(kernels::fp16_type, value), to_fp16(value)) << value;
    const unsigned even = pattern % 2 == 0 ? pattern : pattern + 1;
    EXPECT_EQ(stored(kernels::fp16_type, middle), even);
  }
  EXPECT_EQ(stored(kernels::fp16_type, 65519.99f), 0x7bff);
  EXPECT_EQ(stored(kernels::fp16_type, 65520.0f), 0x7c00);
  EXPECT_EQ(stored(kernels::fp16_type, -1e30f), 0xfc00);
  EXPECT_EQ(stored(kernels::fp16_type, 0x1p-26f), 0);
}

// SPDX-License-Identifier: Apache-2.0
// Descriptors of operands of wgmma, read as the PTX manual has them, against where values are put.
#include "kernels/cuda_sm90/shared_layout.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>

namespace {

using namespace msabench::cuda_sm90;

struct decoded {
  std::uint32_t start, leading, stride, base_offset, swizzle;
};

decoded decode(std::uint64_t descriptor) {
  const auto field = [&](int first, int bits) {
    return static_cast<std::uint32_t>(descriptor >> first & ((std::uint64_t{1} << bits) - 1));
  };
  return {field(0, 14) * 16, field(16, 14) * 16, field(32, 14) * 16, field(49, 3), field(62, 2)};
}

/// The swizzle of 128 bytes: bits 7 to 9 of an address change bits 4 to 6.
std::uint32_t swizzle(std::uint32_t address) { return address ^ (address >> 7 & 7) << 4; }

constexpr std::uint32_t base = 3 * 1024 + 64 * 1024;

TEST(shared_layout, names_the_swizzle_of_128_bytes_and_aligned_atoms) {
  for (const std::uint64_t descriptor : {k_major_descriptor(base), mn_major_descriptor(base, 8192)}) {
    EXPECT_EQ(decode(descriptor).swizzle, 1u);
    EXPECT_EQ(decode(descriptor).base_offset, 0u);
    EXPECT_EQ(decode(descriptor).start, base);
  }
}

TEST(shared_layout, has_rows_along_k_where_the_descriptor_says) {
  for (std::uint32_t step = 0; step < 4; ++step) {
    const decoded d = decode(k_major_descriptor(base) + step * k_major_step);
    for (std::uint32_t row = 0; row < 256; ++row)
      for (std::uint32_t byte = 0; byte < 32; ++byte) {
        const std::uint32_t plain = d.start + row / 8 * d.stride + row % 8 * 128 + byte;
        ASSERT_EQ(swizzle(plain), base + swizzled(row, step * 32 + byte)) << row << ' ' << byte;
      }
  }
}

TEST(shared_layout, has_rows_across_k_where_the_descriptor_says) {
  constexpr std::uint32_t panel_bytes = 128 * swizzle_row_bytes;  // 128 steps along k
  for (std::uint32_t step = 0; step < 8; ++step) {
    const decoded d = decode(mn_major_descriptor(base, panel_bytes) + step * mn_major_step);
    for (std::uint32_t k = 0; k < 16; ++k)
      for (std::uint32_t column = 0; column < 128; ++column) {
        const std::uint32_t plain =
            d.start + column / 64 * d.leading + column % 64 * 2 + k / 8 * d.stride + k % 8 * 128;
        const std::uint32_t panel = base + column / 64 * panel_bytes;
        ASSERT_EQ(swizzle(plain), panel + swizzled(step * 16 + k, column % 64 * 2)) << k << ' ' << column;
      }
  }
}

TEST(shared_layout, spreads_a_column_of_eight_rows_over_all_banks) {
  for (std::uint32_t chunk = 0; chunk < 8; ++chunk) {
    std::set<std::uint32_t> places;
    for (std::uint32_t row = 0; row < 8; ++row) places.insert(swizzled(row, chunk * 16) % 128);
    EXPECT_EQ(places.size(), 8u);
  }
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
// The 128 bytes of a CUtensorMap as the interpreter has them: nobody but the driver and the hardware knows the real ones.
#pragma once

#include <cstdint>

namespace msabench::ptx {

struct tensor_map {
  static constexpr std::uint32_t known = 0x4d50414d;
  std::uint32_t magic, rank;
  std::uint64_t address;
  std::uint32_t size[5];                ///< elements
  std::uint64_t stride[4];              ///< bytes, of dimensions 1 and up
  std::uint16_t box[5];                 ///< elements
  std::uint8_t element_bytes, swizzle;  ///< of CUtensorMapSwizzle: 0 none, 1: 32 bytes, 2: 64, 3: 128
};
static_assert(sizeof(tensor_map) <= 128);

}  // namespace msabench::ptx

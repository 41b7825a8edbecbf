// SPDX-License-Identifier: Apache-2.0
// How operands of wgmma lie in shared memory, and the descriptors that say so. Plain arithmetic, so that it is tested
// without a device.
//
// All of it is for the swizzle of 128 bytes, which the copy engine writes as well: rows of 128 bytes, eight of which make
// an atom of 1024 bytes, aligned to that. The 16-byte chunk c of row r lies at place c ^ (r % 8) of its row.
//
//   K-major   a row is a row of A or a column of B, its 128 bytes are 64 (of 1 byte: 128) steps along k. Atoms of eight
//             rows each follow each other. Operands of more than 128 bytes along k have a panel for each 128 bytes.
//   MN-major  a row is one step along k, its 128 bytes are 64 rows of A or columns of B. Atoms follow each other along k;
//             more than 64 rows or columns have a panel for each 64, `panel_bytes` apart. 16-bit types only.
#pragma once

#include <cstdint>

#include "kernels/common/types.h"

namespace msabench::cuda_sm90 {

inline constexpr std::uint32_t swizzle_row_bytes = 128;
inline constexpr std::uint32_t swizzle_atom_bytes = 8 * swizzle_row_bytes;

/// Where byte `byte` of row `row` of a panel lies.
MSABENCH_HOST_DEVICE constexpr std::uint32_t swizzled(std::uint32_t row, std::uint32_t byte) {
  return row * swizzle_row_bytes + (byte ^ ((row % 8) << 4));
}

namespace detail {

/// Bits 0-13 the address, 16-29 the leading and 32-45 the stride offset, all in units of 16 bytes; bits 49-51 the address
/// of an atom's row 0 modulo 1024, in rows: 0 as atoms are aligned; bits 62-63 the swizzle, 1 for 128 bytes.
MSABENCH_HOST_DEVICE constexpr std::uint64_t descriptor(std::uint32_t address, std::uint32_t leading,
                                                        std::uint32_t stride) {
  return std::uint64_t{(address >> 4) & 0x3fffu} | std::uint64_t{(leading >> 4) & 0x3fffu} << 16 |
         std::uint64_t{(stride >> 4) & 0x3fffu} << 32 | std::uint64_t{1} << 62;
}

}  // namespace detail

/// `address` in shared memory: of the panel's first atom.
MSABENCH_HOST_DEVICE constexpr std::uint64_t k_major_descriptor(std::uint32_t address) {
  return detail::descriptor(address, 16, swizzle_atom_bytes);  // the leading offset is not used
}
/// `panel_bytes` from 64 rows or columns to the next 64; not used where there are no more.
MSABENCH_HOST_DEVICE constexpr std::uint64_t mn_major_descriptor(std::uint32_t address, std::uint32_t panel_bytes) {
  return detail::descriptor(address, panel_bytes, swizzle_atom_bytes);
}

/// What is added to a descriptor for the instruction's next step along k, 32 bytes of a row, within a panel ...
inline constexpr std::uint64_t k_major_step = 32 >> 4;
/// ... and 16 rows.
inline constexpr std::uint64_t mn_major_step = 16 * swizzle_row_bytes >> 4;

}  // namespace msabench::cuda_sm90

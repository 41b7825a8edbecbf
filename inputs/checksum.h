// SPDX-License-Identifier: Apache-2.0
// A fast checksum that tells whether memory changed; no defence against somebody who wants to deceive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace msabench {

// Depends on every bit, on the order of the bytes and on `before` (chain extents by it). One changed 64-bit word always
// changes the result. Several GB/s; the same on every machine (little-endian).
std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t before);

}  // namespace msabench

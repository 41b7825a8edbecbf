// SPDX-License-Identifier: Apache-2.0
// Fills memory with the poison of core/poison.h and finds what was written outside an output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/dtype.h"
#include "core/poison.h"
#include "inputs/input_set.h"

namespace msabench {

void fill_poison(std::span<std::byte> bytes, dtype t, int launch, std::uint64_t seed);
// The same by all threads where there is much: for the host alone, since a worker has no threads beside its plugin's.
void fill_poison_in_parts(std::span<std::byte> bytes, dtype t, int launch, std::uint64_t seed);

// Fills every output region of the set with poison, bands included.
void poison_outputs(input_set& set, int launch, std::uint64_t seed);

// Looks at the bytes of an output's region outside the tensor (bands on both sides, stride gaps) and at its rows at or
// past `valid_rows` of axis `row_axis` (row_axis < 0: none).
struct damage {
  bool band = false;      // bytes outside the tensor changed
  bool beyond_t = false;  // rows at or past T changed
  std::int64_t at = 0;    // byte offset of the first changed byte from the tensor's first element (negative: before it)
};
damage find_damage(const buffer& output, std::int64_t valid_rows, int row_axis, int launch, std::uint64_t seed);

}  // namespace msabench

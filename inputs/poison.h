// SPDX-License-Identifier: Apache-2.0
// Patterns that stand in memory nobody may read or has not written yet. No pattern is a legal result, and each launch of a
// case gets another one, so that an output that was never written, or was left by the launch before, is seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/dtype.h"
#include "core/tensor_view.h"
#include "inputs/input_set.h"

namespace msabench {

// The word that repeats over the poison of type `t` in launch `launch`: a NaN with a payload for floats; 0x7F7F7F7F, then
// 0x80000001 for int32 (0xFF bytes would read as -1).
std::uint32_t poison_word(dtype t, int launch, std::uint64_t seed);

void fill_poison(std::span<std::byte> bytes, dtype t, int launch, std::uint64_t seed);

// Fills every output region of the set with poison, bands included.
void poison_outputs(input_set& set, int launch, std::uint64_t seed);

// True if the element still holds the poison of that launch.
bool is_poison(const tensor_view& view, std::int64_t element_offset, int launch, std::uint64_t seed);

// Looks at the bytes of an output's region outside the tensor (bands on both sides, stride gaps) and in its rows at or past
// `valid_rows` of axis `row_axis` (row_axis < 0: none).
struct damage {
  bool band = false;      // bytes outside the tensor changed
  bool beyond_t = false;  // rows at or past T changed
  std::int64_t at = 0;    // byte offset of the first changed byte from the tensor's first element (negative: before it)
};
damage find_damage(const buffer& output, std::int64_t valid_rows, int row_axis, int launch, std::uint64_t seed);

}  // namespace msabench

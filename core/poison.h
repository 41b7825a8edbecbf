// SPDX-License-Identifier: Apache-2.0
// The values that stand in memory nobody has written yet. None is a legal result, and each launch of a case gets another
// one, so that an output that was never written, or was left by the launch before, is seen.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/tensor_view.h"

namespace msabench {

// Bit pattern of one element of type `t` in launch `launch`: a NaN with a payload that changes with launch and seed for
// floats (fp64 in 64 bits, 16-bit formats in 16); 0x7F7F7F7F, then 0x80000001, ... for int32 (0xFF bytes would read as -1).
std::uint64_t poison_bits(dtype t, int launch, std::uint64_t seed);

// True if the element still holds the poison of that launch.
bool is_poison(const tensor_view& view, std::int64_t element_offset, int launch, std::uint64_t seed);

}  // namespace msabench

// SPDX-License-Identifier: Apache-2.0
// combine: one result from partial ones (docs/contract.md, section 6). Parts are added in their order.
#pragma once

#include <cstdint>

#include "kernels/common/calls.h"
#include "kernels/naive/stages.h"

namespace msabench::naive {

float partial_weights(const float* lse, std::int64_t count, float* weights, float& maximum);
void add_partial(float weight, const float* values, std::int32_t d, float* row);

/// Scratch of one thread; a double, since sizes that no machine has must not wrap around.
double combine_scratch_bytes(std::int64_t parts, std::int64_t d);

/// All rows. `scratch` holds `threads` slices of `slice_bytes`.
void combine(const stages& stage, const combine_call& call, int threads, void* scratch, std::int64_t slice_bytes);

}  // namespace msabench::naive

// SPDX-License-Identifier: Apache-2.0
// qk_norm_rope: per-head norm, then partial rotary embedding (docs/contract.md, section 2), rounded once at the end.
#pragma once

#include <cstdint>

#include "kernels/common/calls.h"
#include "kernels/naive/stages.h"

namespace msabench::naive {

void norm_rope_row(const stages& stage, const norm_rope_call& call, std::int64_t row, std::int32_t tensor,
                   float* scratch);
std::int64_t rope_position(const lengths& rows, std::int64_t row);
std::int32_t norm_weights(std::int32_t tensor);
void norm_head(const float* x, const float* weight, float eps, std::int32_t dim, float* y);
void rotate_head(const float* cos_sin, std::int32_t rope_dims, std::int32_t dim, float* y);

/// Scratch of one thread; a double, since sizes that no machine has must not wrap around.
double norm_rope_scratch_bytes(std::int64_t dim);

/// All rows. `scratch` holds `threads` slices of `slice_bytes`.
void norm_rope(const stages& stage, const norm_rope_call& call, int threads, void* scratch, std::int64_t slice_bytes);

}  // namespace msabench::naive

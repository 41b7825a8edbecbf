// SPDX-License-Identifier: Apache-2.0
// Positions and segments of patches, and their rotation (docs/contract.md, section 8), one patch at a time. Angles are
// coordinate times frequency in fp32, a frequency rounded once.
#pragma once

#include <cstdint>

#include "kernels/naive/stages.h"

namespace msabench::naive {

/// Angles, and one head; a double, since sizes that no machine has must not wrap around.
double rope3d_scratch_bytes(std::int64_t d);

/// All patches. `scratch` holds `threads` slices of `slice_bytes`.
void rope3d(const stages& stage, const rope3d_call& call, int threads, void* scratch, std::int64_t slice_bytes);

std::int64_t segment_patches(const patch_grids& items, const patch_grid& item);
patch_position place_in_frame(const patch_grid& item, std::int64_t patch);
patch_position angle_position(const patch_position& position, std::int64_t segment_first);
float axis_frequency(std::int32_t i, std::int32_t pairs, std::int32_t d, double theta);
void rotate_patch(const float* cosines, const float* sines, std::int32_t pairs, std::int32_t d, float* x);
void rotate_token(const stages& stage, const rope3d_call& call, std::int64_t token, float* scratch);

}  // namespace msabench::naive

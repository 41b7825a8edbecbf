// SPDX-License-Identifier: Apache-2.0
// What lies between the two halves of vit3d: rotated q and k, positions and segments, which a caller need not want.
#pragma once

#include <msabench/plugin.h>

#include "kernels/common/calls.h"

namespace msabench::kernels {

/// Bytes for all that a caller may leave out; a double, since sizes that no machine has must not wrap around.
double vit3d_tensor_bytes(const msabench_problem& problem);

/// The call with everything in its place: what is absent lies in `memory`, of that many bytes and 64-byte aligned, and the
/// attention reads what the rotation writes. `segments`: how many that will make.
vit3d_call complete(const vit3d_call& call, const msabench_problem& problem, std::int64_t segments, void* memory);

/// The attention as a problem of its own, of as many segments as there can be.
msabench_problem attention_of_vit3d(const msabench_problem& problem);

}  // namespace msabench::kernels

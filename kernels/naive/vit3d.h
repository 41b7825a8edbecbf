// SPDX-License-Identifier: Apache-2.0
// vit3d (docs/contract.md, section 8): rope3d, whose q and k are rounded to their storage type, then vit_attend on these.
#pragma once

#include <cstdint>

#include "kernels/naive/stages.h"

namespace msabench::naive {

/// Scratch behind the slices of the threads; a double, since sizes that no machine has must not wrap around.
double vit3d_shared_bytes(const msabench_problem& problem);

/// All patches. `scratch` holds `threads` slices of `slice_bytes`, and what the threads share behind them.
void vit3d(const stages& stage, const vit3d_call& call, const msabench_problem& problem, int threads, void* scratch,
           std::int64_t slice_bytes);

}  // namespace msabench::naive

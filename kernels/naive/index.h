// SPDX-License-Identifier: Apache-2.0
// index: score and select in one (docs/contract.md, sections 3 and 4), and the log-sum-exp over the selected tokens.
#pragma once

#include <cstdint>

#include "kernels/naive/score.h"
#include "kernels/naive/stages.h"

namespace msabench::naive {

/// Scratch of one thread; a double, since sizes that no machine has must not wrap around.
double index_scratch_bytes(const score_sizes& sizes, std::int64_t max_blocks);

/// All rows. `scratch` holds `threads` slices of `slice_bytes`.
void index(const stages& stage, const index_call& call, int threads, void* scratch, std::int64_t slice_bytes);

}  // namespace msabench::naive

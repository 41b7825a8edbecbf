// SPDX-License-Identifier: Apache-2.0
// select: block ids from given scores (docs/contract.md, section 4).
#pragma once

#include <cstdint>

#include "kernels/common/calls.h"
#include "kernels/naive/stages.h"

namespace msabench::naive {

void select_row(const selection_rule& rule, const row_place& place, const float* scores, std::int32_t* candidates,
                std::int32_t* ids);

/// Whether `block` is selected whatever its score, in a row that sees `visible` blocks.
bool is_forced(const selection_rule& rule, std::int64_t visible, std::int64_t block);

/// The rank of a block's score: NaN counts as -infinity, and -0 as 0.
float rank_score(float score);

/// Scratch of one thread.
std::int64_t select_scratch_bytes(std::int64_t max_blocks);

/// All rows. `scratch` holds `threads` slices of `slice_bytes`.
void select(const stages& stage, const select_call& call, int threads, void* scratch, std::int64_t slice_bytes);

}  // namespace msabench::naive

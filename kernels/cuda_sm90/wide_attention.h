// SPDX-License-Identifier: Apache-2.0
// Attention over all visible keys, of tokens in their sequence and of patches in their segment.
#pragma once

#include "kernels/cuda_sm90/operators.h"

namespace msabench::cuda_sm90 {

/// Whether a problem of dense, vit_attend or vit3d is computed here. Workspace and thread blocks are planned as those of
/// the portable kernel (kernels/cuda/attention_plan.h).
bool takes_wide_attention(const msabench_problem& problem);

void wide_attention(const attend_call& call, const run_context& context);

}  // namespace msabench::cuda_sm90

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/implementation.h"
#include "kernels/cuda/attention_plan.h"

namespace msabench::cuda {

/// The rows of one token and KV head are one warp's: selected blocks, and `dense` with one query token a sequence.
/// `follows`: kernels of the same run, with which it may overlap.
void narrow_attention(const kernels::attend_call& call, const kernels::run_context& context, const attention_plan& plan,
                      bool follows);

}  // namespace msabench::cuda

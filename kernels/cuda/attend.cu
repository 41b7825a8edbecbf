// SPDX-License-Identifier: Apache-2.0
// Attention over selected blocks, token by token.
#include "kernels/cuda/narrow_attention.h"
#include "kernels/cuda/operators.h"

namespace msabench::cuda {

void attend(const attend_call& call, const run_context& context) {
  narrow_attention(call, context, plan_attention(context.problem));
}

}  // namespace msabench::cuda

// SPDX-License-Identifier: Apache-2.0
// Attention over selected blocks: token by token, or where tokens are many and share blocks, block by block.
#include "kernels/cuda/gathered_attention.h"
#include "kernels/cuda/narrow_attention.h"
#include "kernels/cuda/operators.h"

namespace msabench::cuda {

namespace {

void attend_as(const attend_call& call, const run_context& context, bool follows) {
  if (gathers_tokens(context.problem))
    gathered_attention(call, context);
  else
    narrow_attention(call, context, plan_attention(context.problem), follows);
}

}  // namespace

void attend(const attend_call& call, const run_context& context) { attend_as(call, context, false); }

void attend_selected(const attend_call& call, const run_context& context) { attend_as(call, context, true); }

}  // namespace msabench::cuda

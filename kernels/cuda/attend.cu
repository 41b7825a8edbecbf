// SPDX-License-Identifier: Apache-2.0
// Attention over selected blocks: each token has its own, so a warp has the query heads of one token and KV head.
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/narrow_attention.h"
#include "kernels/cuda/operators.h"

namespace msabench::cuda {
namespace {

template <class T>
void attend_as(const attend_call& call, const run_context& context, const attention_plan& plan) {
  if (plan.columns == 64)
    launch_attention<narrow_shape<T, 64>>(call, context, plan);
  else
    launch_attention<narrow_shape<T, 128>>(call, context, plan);
}

}  // namespace

void narrow_attention(const attend_call& call, const run_context& context, const attention_plan& plan) {
  if (same_type(call.q_type, bf16_type))
    attend_as<__nv_bfloat16>(call, context, plan);
  else
    attend_as<__half>(call, context, plan);
}

void attend(const attend_call& call, const run_context& context) {
  narrow_attention(call, context, plan_attention(context.problem));
}

}  // namespace msabench::cuda

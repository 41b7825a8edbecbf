// SPDX-License-Identifier: Apache-2.0
// Attention over all visible keys, of tokens in their sequence and of patches in their segment.
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/narrow_attention.h"
#include "kernels/cuda/operators.h"

namespace msabench::cuda {
namespace {

template <class T>
void dense_as(const attend_call& call, const run_context& context, const attention_plan& plan) {
  if (plan.columns == 80)
    launch_attention<wide_shape<T, 80>>(call, context, plan);
  else
    launch_attention<wide_shape<T, 128>>(call, context, plan);
}

}  // namespace

void dense(const attend_call& call, const run_context& context) {
  const attention_plan plan = plan_attention(context.problem);
  if (!plan.wide)
    narrow_attention(call, context, plan);
  else if (same_type(call.q_type, bf16_type))
    dense_as<__nv_bfloat16>(call, context, plan);
  else
    dense_as<__half>(call, context, plan);
}

// Patches see all of their segment, which its lengths say: no lengths of keys.
void vit_attend(const attend_call& call, const run_context& context) { dense(call, context); }

}  // namespace msabench::cuda

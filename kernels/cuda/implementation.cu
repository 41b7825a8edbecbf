// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/implementation.h"

#include "kernels/common/declare.h"
#include "kernels/common/storage.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.h"

namespace msabench::cuda {
namespace {

bool stores(msabench_dtype type) { return same_type(type, bf16_type) || same_type(type, fp16_type); }

msabench_profile profile(const msabench_problem& problem) {
  msabench_profile delivered = canonical_profile(problem);
  delivered.graph_safe = 1;
  if (is_attention(problem.op)) delivered.batch_invariant &= attention_is_batch_invariant(problem);
  return delivered;
}

msabench_numerics numerics(const msabench_problem& problem) {
  if (is_index_branch(problem.op)) return index_numerics(problem);
  if (is_attention(problem.op)) return attention_numerics(problem);
  if (is_attention_backward(problem.op)) return backward_numerics(problem);
  if (problem.op == MSABENCH_OP_KL) return kl_numerics(problem);
  return fp32_numerics(problem);
}

double scratch_bytes(const msabench_problem& problem, int) {
  if (problem.op == MSABENCH_OP_VIT3D) return vit3d_scratch_bytes(problem);
  if (problem.op == MSABENCH_OP_ROPE3D) return rope3d_scratch_bytes(problem);
  if (is_index_branch(problem.op)) return index_scratch_bytes(problem);
  if (problem.op == MSABENCH_OP_MSA) return msa_scratch_bytes(problem);
  if (is_attention(problem.op)) return attention_scratch_bytes(problem);
  if (is_attention_backward(problem.op)) return backward_scratch_bytes(problem);
  if (problem.op == MSABENCH_OP_KL) return kl_scratch_bytes(problem);
  return 0;
}

const char* refusal(const msabench_problem& problem) {
  if (is_attention_backward(problem.op)) return backward_refusal(problem);
  if (problem.op == MSABENCH_OP_KL) return kl_refusal(problem);
  const char* const text = index_refusal(problem);
  return text == nullptr ? attention_refusal(problem) : text;
}

}  // namespace

const kernels::implementation portable_kernels = {
    .name = "cuda",
    .description =
        "mma.sync and cp.async on NVIDIA GPUs from sm_80 on: qk_norm_rope, score, select, index, attend, dense, msa, "
        "combine, attend_backward, dense_backward, kl, rope3d, vit_attend and vit3d",
    .stores = stores,
    .storage_types = "bf16 {4,16,1} and fp16 {2,16,1}, and fp32 {2,32,1} of what no matrix unit reads",
    .stores_unmultiplied = is_float_storage,
    .profile = profile,
    .numerics = numerics,
    .scratch_bytes = scratch_bytes,
    .refusal = refusal,
    .device = 2,
    .enqueue_error = launch_error,
    .select = select,
    .attend = attend,
    .dense = dense,
    .vit_attend = vit_attend,
    .rope3d = rope3d,
    .vit3d = vit3d,
    .msa = msa,
    .score = score,
    .index = index,
    .combine = combine,
    .norm_rope = norm_rope,
    .attend_backward = attend_backward,
    .dense_backward = attend_backward,
    .kl = kl,
};

}  // namespace msabench::cuda

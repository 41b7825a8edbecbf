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
  return delivered;
}

msabench_numerics numerics(const msabench_problem& problem) {
  switch (problem.op) {
    case MSABENCH_OP_ATTEND_BACKWARD:
    case MSABENCH_OP_DENSE_BACKWARD:
      return backward_numerics(problem);
    default:
      return fp32_numerics(problem);
  }
}

const char* refusal(const msabench_problem& problem) {
  switch (problem.op) {
    case MSABENCH_OP_ATTEND_BACKWARD:
    case MSABENCH_OP_DENSE_BACKWARD:
      return backward_refusal(problem);
    default:
      return nullptr;
  }
}

double scratch_bytes(const msabench_problem& problem, int) {
  switch (problem.op) {
    case MSABENCH_OP_ROPE3D:
      return rope3d_scratch_bytes(problem);
    case MSABENCH_OP_ATTEND_BACKWARD:
    case MSABENCH_OP_DENSE_BACKWARD:
      return backward_scratch_bytes(problem);
    default:
      return 0;
  }
}

}  // namespace

const kernels::implementation portable_kernels = {
    .name = "cuda",
    .description =
        "mma.sync and cp.async on NVIDIA GPUs from sm_80 on: qk_norm_rope, combine, rope3d, attend_backward and "
        "dense_backward",
    .stores = stores,
    .storage_types = "bf16 {4,16,1} and fp16 {2,16,1}, and fp32 {2,32,1} of what no matrix unit reads",
    .stores_unmultiplied = is_float_storage,
    .refusal = refusal,
    .profile = profile,
    .numerics = numerics,
    .scratch_bytes = scratch_bytes,
    .device = 2,
    .enqueue_error = launch_error,
    .rope3d = rope3d,
    .combine = combine,
    .norm_rope = norm_rope,
    .attend_backward = attend_backward,
    .dense_backward = attend_backward,
};

}  // namespace msabench::cuda

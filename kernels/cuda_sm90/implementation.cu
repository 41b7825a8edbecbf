// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda_sm90/implementation.h"

#include "kernels/cuda/implementation.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda_sm90/operators.h"
#include "kernels/cuda_sm90/tensor_map.h"

namespace msabench::cuda_sm90 {
namespace {

const char* enqueue_error() {
  const char* const text = cuda::launch_error();
  const char* const map_text = map_error();
  return map_text != nullptr ? map_text : text;
}

// `msa` is that of plugin `cuda` still.
msabench_profile profile(const msabench_problem& problem) {
  msabench_profile delivered = cuda::portable_kernels.profile(problem);
  if (problem.op == MSABENCH_OP_ATTEND) delivered.batch_invariant &= attend_is_batch_invariant(problem);
  return delivered;
}

msabench_numerics numerics(const msabench_problem& problem) {
  return problem.op == MSABENCH_OP_ATTEND ? attend_numerics(problem) : cuda::portable_kernels.numerics(problem);
}

double scratch_bytes(const msabench_problem& problem, int threads) {
  return problem.op == MSABENCH_OP_ATTEND ? attend_scratch_bytes(problem)
                                          : cuda::portable_kernels.scratch_bytes(problem, threads);
}

}  // namespace

const kernels::implementation& hopper_kernels() {
  static const kernels::implementation hopper = [] {
    kernels::implementation all = cuda::portable_kernels;
    all.name = "cuda_sm90";
    all.description = "wgmma and bulk copies on Hopper, and the kernels of cuda for what has none here";
    all.enqueue_error = enqueue_error;
    all.profile = profile;
    all.numerics = numerics;
    all.scratch_bytes = scratch_bytes;
    all.attend = attend;
    return all;
  }();
  return hopper;
}

}  // namespace msabench::cuda_sm90

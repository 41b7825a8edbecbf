// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda_sm90/implementation.h"

#include "kernels/cuda/implementation.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda_sm90/decode.h"
#include "kernels/cuda_sm90/operators.h"
#include "kernels/cuda_sm90/tensor_map.h"

namespace msabench::cuda_sm90 {
namespace {

const char* enqueue_error() {
  const char* const text = cuda::launch_error();
  const char* const map_text = map_error();
  return map_text != nullptr ? map_text : text;
}

void index(const index_call& call, const run_context& context) {
  return takes_decode(context.problem) ? decode_index(call, context) : cuda::index(call, context);
}

void attend(const attend_call& call, const run_context& context) {
  return takes_decode(context.problem) ? decode_attend(call, context) : cuda::attend(call, context);
}

void msa(const msa_call& call, const run_context& context) {
  return takes_decode(context.problem) ? decode_msa(call, context) : cuda::msa(call, context);
}

double scratch_bytes(const msabench_problem& problem, int threads) {
  return takes_decode(problem) ? decode_scratch_bytes(problem) : cuda::portable_kernels.scratch_bytes(problem, threads);
}

msabench_numerics numerics(const msabench_problem& problem) {
  return takes_decode(problem) ? decode_numerics(problem) : cuda::portable_kernels.numerics(problem);
}

msabench_profile profile(const msabench_problem& problem) {
  msabench_profile delivered = cuda::portable_kernels.profile(problem);
  // Attention of few tokens is divided by how many they are; scores are the same however a problem is.
  if (problem.op != MSABENCH_OP_INDEX && decodes_rows_alone(problem)) delivered.batch_invariant = 0;
  return delivered;
}

}  // namespace

const kernels::implementation& hopper_kernels() {
  static const kernels::implementation hopper = [] {
    kernels::implementation all = cuda::portable_kernels;
    all.name = "cuda_sm90";
    all.description = "wgmma and bulk copies on Hopper, and the kernels of cuda for what has none here";
    all.enqueue_error = enqueue_error;
    all.index = index;
    all.attend = attend;
    all.msa = msa;
    all.scratch_bytes = scratch_bytes;
    all.numerics = numerics;
    all.profile = profile;
    return all;
  }();
  return hopper;
}

}  // namespace msabench::cuda_sm90

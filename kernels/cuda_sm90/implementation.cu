// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda_sm90/implementation.h"

#include "kernels/common/declare.h"
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

msabench_profile profile(const msabench_problem& problem) {
  msabench_profile delivered = cuda::portable_kernels.profile(problem);
  if (problem.op == MSABENCH_OP_INDEX || problem.op == MSABENCH_OP_MSA)
    delivered.batch_invariant &= index_is_batch_invariant(problem);
  if (problem.op == MSABENCH_OP_ATTEND || problem.op == MSABENCH_OP_MSA)
    delivered.batch_invariant &= attend_is_batch_invariant(problem);
  // Attention of few tokens is divided by how many they are; scores are the same however a problem is.
  if (problem.op != MSABENCH_OP_INDEX && decodes_rows_alone(problem)) delivered.batch_invariant = 0;
  return delivered;
}

msabench_numerics numerics(const msabench_problem& problem) {
  if (takes_decode(problem)) return decode_numerics(problem);
  if (is_index_branch(problem.op)) return index_numerics(problem);
  msabench_numerics declared = takes_attend(problem)      ? attend_numerics(problem)
                               : is_attention(problem.op) ? attention_numerics(problem)
                                                          : cuda::portable_kernels.numerics(problem);
  // One field for the scores of both branches; those of the index branch may be the coarser ones.
  if (problem.op == MSABENCH_OP_MSA) declared.score_acc = index_numerics(problem).score_acc;
  return declared;
}

bool writes_scores(const msabench_problem& problem) {
  return takes_decode(problem) || !same_type(problem.k_idx, e4m3_type);
}

const char* refusal(const msabench_problem& problem) {
  msabench_problem portable = problem;
  const bool attends = is_attention(problem.op) || trains(problem.op);
  if (attends && same_type(problem.kv, e4m3_type)) {
    if (const char* const text = scaled_attend_refusal(problem)) return text;
    portable.kv = problem.q, portable.kv_scale = 0;
  }
  const char* const text = cuda::portable_kernels.refusal(portable);
  return text != nullptr ? text : index_refusal(problem);
}

double scratch_bytes(const msabench_problem& problem, int threads) {
  if (takes_decode(problem)) return decode_scratch_bytes(problem);
  if (problem.op == MSABENCH_OP_INDEX) return index_scratch_bytes(problem);
  if (problem.op == MSABENCH_OP_ATTEND) return attend_scratch_bytes(problem);
  if (problem.op == MSABENCH_OP_MSA) return msa_scratch_bytes(problem);
  if (kernels::is_attention_backward(problem.op)) return attend_backward_scratch_bytes(problem);
  if (problem.op == MSABENCH_OP_KL) return kl_scratch_bytes(problem);
  return cuda::portable_kernels.scratch_bytes(problem, threads);
}

}  // namespace

const kernels::implementation& hopper_kernels() {
  static const kernels::implementation hopper = [] {
    kernels::implementation all = cuda::portable_kernels;
    all.name = "cuda_sm90";
    all.description = "wgmma and bulk copies on Hopper, and the kernels of cuda for what has none here";
    all.profile = profile;
    all.numerics = numerics;
    all.scratch_bytes = scratch_bytes;
    all.refusal = refusal;
    all.writes_scores = writes_scores;
    all.scaled_e4m3 = true;
    all.enqueue_error = enqueue_error;
    all.dense = dense;
    all.vit_attend = vit_attend;
    all.vit3d = vit3d;
    all.index = index;
    all.attend = attend;
    all.msa = msa;
    all.attend_backward = attend_backward;
    all.dense_backward = attend_backward;
    all.kl = kl;
    return all;
  }();
  return hopper;
}

}  // namespace msabench::cuda_sm90

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda_sm90/decode.h"
#include "kernels/cuda_sm90/prefill_index.h"

namespace msabench::cuda_sm90 {

void index(const index_call& call, const run_context& context) {
  if (takes_decode(context.problem)) return decode_index(call, context);
  // Scores that msa is asked for are not there to be written.
  if (takes_prefill_index(context.problem) && call.scores == nullptr)
    prefill_index(call, context);
  else
    cuda::index(call, context);
}

double index_scratch_bytes(const msabench_problem& p) {
  const double portable = cuda::index_scratch_bytes(p);
  if (!takes_prefill_index(p)) return portable;
  const double prefill = prefill_index_scratch_bytes(p);
  // The portable kernel has the calls of msa that want scores.
  return p.op == MSABENCH_OP_MSA && !same_type(p.q_idx, e4m3_type) ? std::max(portable, prefill) : prefill;
}

bool index_is_batch_invariant(const msabench_problem& p) {
  if (takes_decode(p)) return true;
  // Of e4m3 no other kernel than that of decode computes a row, and to other bits.
  return same_type(p.q_idx, e4m3_type) ? !decodes_rows_alone(p) : !takes_prefill_index(p);
}

const char* index_refusal(const msabench_problem& p) {
  if (!same_type(p.q_idx, e4m3_type)) return nullptr;
  if (p.op != MSABENCH_OP_SCORE && p.op != MSABENCH_OP_INDEX && p.op != MSABENCH_OP_MSA) return nullptr;
  if (takes_decode(p) || takes_prefill_index(p)) return nullptr;
  return "q_idx {10,8,1}: e4m3 is there for index and msa, blocks of 128, di in multiples of 16, pages of multiples of "
         "128, and up to 16 blocks that are not forced; use bf16";
}

msabench_numerics index_numerics(const msabench_problem& p) {
  msabench_numerics declared = cuda::index_numerics(p);
  constexpr msabench_dtype e4m3_sums{2, 22, 1};
  if (same_type(p.q_idx, e4m3_type)) declared.score_acc = e4m3_sums;
  return declared;
}

}  // namespace msabench::cuda_sm90

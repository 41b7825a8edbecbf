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
  return p.op == MSABENCH_OP_MSA ? std::max(portable, prefill) : prefill;
}

bool index_is_batch_invariant(const msabench_problem& p) { return takes_decode(p) || !takes_prefill_index(p); }

}  // namespace msabench::cuda_sm90

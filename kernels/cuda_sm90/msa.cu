// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda_sm90/decode.h"

namespace msabench::cuda_sm90 {

void msa(const msa_call& call, const run_context& context) {
  if (takes_decode(context.problem)) return decode_msa(call, context);
  cuda::msa_of(call, context, {index, attend});
}

double msa_scratch_bytes(const msabench_problem& p) {
  return cuda::msa_scratch_bytes(p, index_scratch_bytes(p), attend_scratch_bytes(p));
}

}  // namespace msabench::cuda_sm90

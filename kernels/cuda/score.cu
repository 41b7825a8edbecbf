// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/scoring.h"

namespace msabench::cuda {

void score(const index_call& call, const run_context& context) {
  if (streams(context.problem))
    stream_scores(call, call.scores, call.score_head_stride, call.score_row_stride, true, context);
  else
    sweep_scores(call, nullptr, context);
}

}  // namespace msabench::cuda

// SPDX-License-Identifier: Apache-2.0
// Patches see all of their segment: dense attention without a mask, whose sequences are the segments.
#include "kernels/cudnn/graph.h"
#include "kernels/cudnn/operators.h"

namespace msabench::cudnn {

void vit_attend(const attend_call& call, const run_context& context) {
  const msabench_problem problem = with_keys(context.problem);
  dense(call, {problem, context.threads, context.scratch, context.scratch_bytes, context.stream, context.state});
}

}  // namespace msabench::cudnn

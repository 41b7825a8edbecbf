// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda_sm90/decode.h"

namespace msabench::cuda_sm90 {

void attend(const attend_call& call, const run_context& context) {
  if (takes_decode(context.problem)) return decode_attend(call, context);
  cuda::attend(call, context);
}

}  // namespace msabench::cuda_sm90

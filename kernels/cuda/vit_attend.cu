// SPDX-License-Identifier: Apache-2.0
// Patches see all of their segment, and nothing else of it is special: without lengths of keys, segments are sequences
// whose tokens all stand at the end (kernels/common/lengths.h).
#include "kernels/cuda/operators.h"

namespace msabench::cuda {

void vit_attend(const attend_call& call, const run_context& context) { dense(call, context); }

}  // namespace msabench::cuda

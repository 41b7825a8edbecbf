// SPDX-License-Identifier: Apache-2.0
// The operators on Hopper. As in kernels/cuda/operators.h each enqueues and returns; a problem that its kernel does not
// take goes to the portable one of the same name.
#pragma once

#include "kernels/cuda/operators.h"

namespace msabench::cuda_sm90 {

using namespace msabench::kernels;

/// Whether `attend`, or that of `msa`, has a kernel here for a problem.
bool takes_attend(const msabench_problem& problem);
void attend(const attend_call& call, const run_context& context);
msabench_numerics attend_numerics(const msabench_problem& problem);
bool attend_is_batch_invariant(const msabench_problem& problem);
double attend_scratch_bytes(const msabench_problem& problem);

}  // namespace msabench::cuda_sm90

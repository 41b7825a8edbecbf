// SPDX-License-Identifier: Apache-2.0
// The index branch of many query tokens, and of any number of them in e4m3.
#pragma once

#include "kernels/cuda_sm90/operators.h"

namespace msabench::cuda_sm90 {

/// Whether a problem of index, or the index branch of msa, is computed here.
bool takes_prefill_index(const msabench_problem& problem);

/// Ids, and the log-sum-exp of the selected keys if it is wanted. The call wants no scores.
void prefill_index(const index_call& call, const run_context& context);

double prefill_index_scratch_bytes(const msabench_problem& problem);

}  // namespace msabench::cuda_sm90

// SPDX-License-Identifier: Apache-2.0
// Few query tokens of many keys: which problems are taken here, and what is declared of them.
#pragma once

#include "kernels/cuda_sm90/operators.h"

namespace msabench::cuda_sm90 {

/// index; and attend; and msa, which is both. Of M3's shape and its shards: dims of 128, blocks of 128, up to 64 rows
/// (token, index head) of a sequence; contiguous, or pages of whole blocks.
bool takes_decode(const msabench_problem& problem);

/// Whether a row of the problem, alone in a call of its own, would be taken.
bool decodes_rows_alone(const msabench_problem& problem);

void decode_index(const index_call& call, const run_context& context);
void decode_attend(const attend_call& call, const run_context& context);
void decode_msa(const msa_call& call, const run_context& context);

double decode_scratch_bytes(const msabench_problem& problem);
msabench_numerics decode_numerics(const msabench_problem& problem);

}  // namespace msabench::cuda_sm90

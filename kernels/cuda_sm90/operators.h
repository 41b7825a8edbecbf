// SPDX-License-Identifier: Apache-2.0
// The operators on Hopper. As in kernels/cuda/operators.h each enqueues and returns; a problem that its kernel does not
// take goes to the portable one of the same name.
#pragma once

#include "kernels/cuda/operators.h"

namespace msabench::cuda_sm90 {

using namespace msabench::kernels;

void index(const index_call& call, const run_context& context);
void msa(const msa_call& call, const run_context& context);

// Of index, and of the index branch of msa.
double index_scratch_bytes(const msabench_problem& problem);
bool index_is_batch_invariant(const msabench_problem& problem);
msabench_numerics index_numerics(const msabench_problem& problem);
/// Beside what the kernels of cuda refuse.
const char* index_refusal(const msabench_problem& problem);

void dense(const attend_call& call, const run_context& context);
void vit_attend(const attend_call& call, const run_context& context);
void vit3d(const vit3d_call& call, const run_context& context);

// Of dense, vit_attend and the attention in vit3d; of others what the portable kernels say.
msabench_numerics attention_numerics(const msabench_problem& problem);
/// dense_backward as well
void attend_backward(const backward_call& call, const run_context& context);
double attend_backward_scratch_bytes(const msabench_problem& problem);

void kl(const kl_call& call, const run_context& context);
double kl_scratch_bytes(const msabench_problem& problem);

double msa_scratch_bytes(const msabench_problem& problem);

/// Why keys and values in e4m3, which the portable kernels don't take, are not taken; nullptr: they are.
const char* scaled_attend_refusal(const msabench_problem& problem);
/// Whether `attend`, or that of `msa`, has a kernel here for a problem.
bool takes_attend(const msabench_problem& problem);
void attend(const attend_call& call, const run_context& context);
msabench_numerics attend_numerics(const msabench_problem& problem);
bool attend_is_batch_invariant(const msabench_problem& problem);
double attend_scratch_bytes(const msabench_problem& problem);

}  // namespace msabench::cuda_sm90

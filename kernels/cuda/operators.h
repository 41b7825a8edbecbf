// SPDX-License-Identifier: Apache-2.0
// The operators on the device. Each function enqueues its kernels on context.stream and returns; launch_error says what
// went wrong. Lengths, tables and ids are read by the kernels alone, so a captured graph follows them.
#pragma once

#include "kernels/common/calls.h"
#include "kernels/common/implementation.h"

namespace msabench::cuda {

using namespace msabench::kernels;

void combine(const combine_call& call, const run_context& context);

void attend(const attend_call& call, const run_context& context);
/// The same right behind `index` of the same run, with which it may overlap.
void attend_selected(const attend_call& call, const run_context& context);
void dense(const attend_call& call, const run_context& context);
void vit_attend(const attend_call& call, const run_context& context);

// Of attend, dense and vit_attend, and of the attention in msa and vit3d.
const char* attention_refusal(const msabench_problem& problem);
msabench_numerics attention_numerics(const msabench_problem& problem);
bool attention_is_batch_invariant(const msabench_problem& problem);
double attention_scratch_bytes(const msabench_problem& problem);

void norm_rope(const norm_rope_call& call, const run_context& context);

void rope3d(const rope3d_call& call, const run_context& context);
double rope3d_scratch_bytes(const msabench_problem& problem);
void vit3d(const vit3d_call& call, const run_context& context);
double vit3d_scratch_bytes(const msabench_problem& problem);
/// With another kernel for its attention, which gets by with the scratch of vit_attend.
void vit3d_of(const vit3d_call& call, const run_context& context,
              void (*attend)(const attend_call&, const run_context&));

/// dense_backward as well
void attend_backward(const backward_call& call, const run_context& context);
double backward_scratch_bytes(const msabench_problem& problem);
msabench_numerics backward_numerics(const msabench_problem& problem);
const char* backward_refusal(const msabench_problem& problem);

void kl(const kl_call& call, const run_context& context);
double kl_scratch_bytes(const msabench_problem& problem);
msabench_numerics kl_numerics(const msabench_problem& problem);
const char* kl_refusal(const msabench_problem& problem);

void score(const index_call& call, const run_context& context);
void select(const select_call& call, const run_context& context);
void index(const index_call& call, const run_context& context);
void msa(const msa_call& call, const run_context& context);

// Of score, select and index, and of the index branch of msa.
const char* index_refusal(const msabench_problem& problem);
msabench_numerics index_numerics(const msabench_problem& problem);
double index_scratch_bytes(const msabench_problem& problem);

double msa_scratch_bytes(const msabench_problem& problem);

/// Kernels that msa is put together from; other plugins have their own.
struct msa_stages {
  void (*index)(const index_call&, const run_context&);
  void (*attend)(const attend_call&, const run_context&);
};
void msa_of(const msa_call& call, const run_context& context, const msa_stages& stages);
/// `index_bytes`, `attend_bytes`: scratch of the stages.
double msa_scratch_bytes(const msabench_problem& problem, double index_bytes, double attend_bytes);

}  // namespace msabench::cuda

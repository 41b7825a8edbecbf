// SPDX-License-Identifier: Apache-2.0
// The operators, each in the file of its name. `context.scratch` holds what the function beside it asks for: bytes for a
// run by so many threads, a double, since sizes that no machine has must not wrap around.
#pragma once

#include "kernels/common/calls.h"
#include "kernels/common/implementation.h"

namespace msabench::cpu {

using namespace kernels;

/// How well each block suits a query token (section 3).
void score(const index_call& call, const run_context& context);
double score_scratch_bytes(const msabench_problem& problem, int threads);

/// Block ids from given scores (section 4), in one pass over them.
void select(const select_call& call, const run_context& context);
double select_scratch_bytes(const msabench_problem& problem, int threads);

/// Block ids straight from queries and keys (section 4). Scores are ranked as they come and never all held.
void index(const index_call& call, const run_context& context);
double index_scratch_bytes(const msabench_problem& problem, int threads);

/// Attention over selected blocks, or over all visible keys if the call has no ids (section 5), which inside segments are
/// all of them (section 8).
void attend(const attend_call& call, const run_context& context);
double attend_scratch_bytes(const msabench_problem& problem, int threads);

/// Index, then attend (section 5).
void msa(const msa_call& call, const run_context& context);
double msa_scratch_bytes(const msabench_problem& problem, int threads);

/// Gradients of attention (section 7).
void attend_backward(const backward_call& call, const run_context& context);
double backward_scratch_bytes(const msabench_problem& problem, int threads);

/// Longest chains of additions in dq, and in dk and dv.
struct gradient_chains {
  std::int64_t dq, dkv;
};
gradient_chains chains_of_backward(const msabench_problem& problem);

/// The loss of the index branch and its gradients (section 7).
void kl(const kl_call& call, const run_context& context);
double kl_scratch_bytes(const msabench_problem& problem, int threads);
gradient_chains chains_of_kl(const msabench_problem& problem);

/// Partial results put together (section 6).
void combine(const combine_call& call, const run_context& context);
double combine_scratch_bytes(const msabench_problem& problem, int threads);

/// Norm and rotation of new tokens (section 2).
void norm_rope(const norm_rope_call& call, const run_context& context);
double norm_rope_scratch_bytes(const msabench_problem& problem, int threads);

/// Positions, segments and rotated patches (section 8).
void rope3d(const rope3d_call& call, const run_context& context);
double rope3d_scratch_bytes(const msabench_problem& problem, int threads);

/// Rotation, then attention inside segments (section 8).
void vit3d(const vit3d_call& call, const run_context& context);
double vit3d_scratch_bytes(const msabench_problem& problem, int threads);

}  // namespace msabench::cpu

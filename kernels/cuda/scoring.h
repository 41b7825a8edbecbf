// SPDX-License-Identifier: Apache-2.0
// The two ways to score blocks, which give the same bits, and what follows scores.
#pragma once

#include "kernels/cuda/operators.h"
#include "kernels/cuda/top_blocks.cuh"

namespace msabench::cuda {

/// Rows of a sequence (token, head) that are scored at the pace of memory: each key is read once for all of them.
constexpr int stream_rows = 64;
/// Rows that a thread block can have on any device, so heads of a token at the most.
constexpr int least_rows = 64;

/// Whether no sequence of a run has more.
bool streams(const msabench_problem& problem);

/// Scores of every block into `scores` [heads][T][max_blocks], for few rows; past the visible ones -infinity if
/// `whole_rows`, else nothing is written.
void stream_scores(const index_call& call, float* scores, std::int64_t head_stride, std::int64_t row_stride,
                   bool whole_rows, const run_context& context);

/// `select`, of rows of which `columns` scores may be read. `overlaps`: with stream_scores, right behind it; of kernels
/// that are not ours nobody knows what they write.
void select_blocks(const select_call& call, std::int64_t columns, bool overlaps, const run_context& context);

/// For many rows: scores into those of the call, if it has any, and the best blocks of each row into its ids, if it has
/// any. `scratch`: of sweep_scratch_bytes.
void sweep_scores(const index_call& call, void* scratch, const run_context& context);

double sweep_scratch_bytes(const msabench_problem& problem);

/// Ids of rows whose keys were shared, from the best blocks of each part: `lists` [T][heads][splits][wanted], each sorted.
/// Those of rows of topk blocks or less are not read.
void merge_lists(const index_call& call, const rank* lists, int splits, cudaStream_t stream);

/// lse_idx, from the ids of the call; of e4m3 too.
void log_sums_of_selected(const index_call& call, cudaStream_t stream);

}  // namespace msabench::cuda

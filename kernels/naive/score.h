// SPDX-License-Identifier: Apache-2.0
// score: how well each block suits a query token (docs/contract.md, section 3).
#pragma once

#include <cstdint>

#include "kernels/naive/stages.h"

namespace msabench::naive {

/// The sizes that a thread's scratch follows from.
struct score_sizes {
  std::int64_t heads, width, block;
};

/// A thread's scratch, laid out in the order of score_scratch_bytes.
struct score_scratch {
  score_scratch(void* memory, const score_sizes& sizes);
  float* tile;     ///< [block][width]
  float* queries;  ///< [heads][width]
  float* scores;   ///< [block]
  void* rest;      ///< behind them
};

/// Scratch of one thread; a double, since sizes that no machine has must not wrap around.
double score_scratch_bytes(const score_sizes& sizes);

/// Blocks of a row, first .. end-1.
struct block_range {
  std::int64_t row;
  row_place place;
  std::int64_t first, end;
};

/// Where a row stands; no further than the columns of scores reach, as lengths above the bound of the problem are the
/// caller's fault, but no reason to read or write behind them.
row_place place_in_bounds(const index_call& call, std::int64_t row);

/// q_idx of the row, widened, the query of each KV head in its place.
void load_queries(const stages& stage, const index_call& call, std::int64_t row, float* queries);

/// The visible keys of a block, widened into scratch.tile.
tile load_index_tile(const stages& stage, const index_call& call, const row_place& place, std::int64_t block,
                     const score_scratch& scratch);

/// Scores of a range of blocks for all heads, from the queries in `scratch`: maxima[head * head_stride + block].
void score_blocks(const stages& stage, const index_call& call, const block_range& blocks, const score_scratch& scratch,
                  float* maxima, std::int64_t head_stride);

std::int32_t index_head(std::int32_t kv_head, std::int32_t kv_heads);

/// All rows. `scratch` holds `threads` slices of `slice_bytes`.
void score(const stages& stage, const index_call& call, int threads, void* scratch, std::int64_t slice_bytes);

}  // namespace msabench::naive

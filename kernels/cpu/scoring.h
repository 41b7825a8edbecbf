// SPDX-License-Identifier: Apache-2.0
// The core of score and index: queries of neighbouring tokens and all index heads against strips of blocks.
#pragma once

#include <cstdint>

#include "kernels/common/calls.h"
#include "kernels/common/implementation.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/tile.h"
#include "kernels/cpu/token_tiles.h"

namespace msabench::cpu {

using namespace kernels;

struct scoring_sizes {
  std::int64_t tile_tokens, rows;  ///< rows = tile_tokens * Hi
  std::int64_t width;              ///< di
  std::int64_t strip_blocks;       ///< blocks whose scores are held at a time
  std::int64_t strips;             ///< of the longest sequence
};
scoring_sizes scoring_sizes_of(const msabench_problem& problem);

/// What a thread computes in.
struct scoring_scratch {
  float* queries;                   ///< [rows][width]
  float* panel;                     ///< [width][panel_columns]
  float* scores;                    ///< [rows][tile_keys]
  float* maxima;                    ///< [rows][strip_blocks]
  const char **addresses, **ahead;  ///< [tile_keys]
};
scoring_scratch take_scratch(carver& memory, const scoring_sizes& sizes);

/// A tile of tokens and its queries, row = token * Hi + head.
struct scoring_rows {
  token_tile tile;
  const float* queries;
  float scale;                 ///< not negative
  std::int64_t first_visible;  ///< keys that the first token sees; negative for padding. Every later one sees one more.

  std::int64_t visible(std::int64_t token) const { return first_visible + token < 0 ? 0 : first_visible + token; }
};

/// Widens the queries of a tile into scratch.
scoring_rows scoring_rows_of(const index_call& call, const token_tile& tile, const scoring_scratch& scratch);

/// Scaled maxima of blocks first .. first + count - 1 into scratch.maxima, [row][strip_blocks]; -infinity where a token
/// sees none of a block's keys.
void score_strip(const index_call& call, const scoring_rows& rows, std::int64_t first, std::int64_t count,
                 std::int64_t strip_blocks, const scoring_scratch& scratch);

/// Copies them from there to the scores of the call.
void write_strip(const index_call& call, const scoring_rows& rows, std::int64_t first, std::int64_t count,
                 std::int64_t strip_blocks, const scoring_scratch& scratch);

}  // namespace msabench::cpu

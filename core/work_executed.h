// SPDX-License-Identifier: Apache-2.0
// FLOPs that a tiled kernel executes: useful ones, padding up to whole tiles, and keys that a row computes only because a row of the same
// tile selected them. Beside the useful FLOPs of core/work.h; never in their place.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "core/pairs.h"
#include "core/problem.h"

namespace msabench {

struct tile_shape {
  // Consecutive query tokens of one sequence in a tile, from its first row. A larger tile loads each key for more rows, but computes more
  // keys past the diagonal, and over selected blocks a larger union.
  std::int64_t tokens = 1;
  // Rows that the matrix instruction computes for a tile, at least tokens x heads: the query heads of one KV head (attend, dense, ...),
  // all index heads (score, index), 1 (vision). 0: exactly these.
  std::int64_t rows = 0;
  // Keys computed at a time, counted from position 0 (from the block's first key over selected blocks, from the segment's in vision).
  std::int64_t keys = 1;
};

// score, index, dense, dense_backward, kl in its warm-up: each tile computes all its rows over the keys up to its last row's position,
// rounded up to whole key tiles. attend, attend_backward, kl: each tile computes all its rows over the union of its rows' blocks, whole.
// `tile_blocks` (core/selection_counts.h, counted for tile.tokens) is the sum of the unions over tiles and KV heads; it is needed for
// them unless tile.tokens = 1. kl counts its index heads without padding of rows. suite_error for other operators (the work of msa is
// that of its stages, index and attend, each with its tile), for a missing tile_blocks and for tiles below 1.
double executed_flops(const problem& p, batch_lengths batch, const tile_shape& tile,
                      std::optional<std::int64_t> tile_blocks = {});

// vit_attend and the attention of vit3d: tiles of a segment over all its keys.
double executed_flops_vision(const problem& p, std::span<const grid> items, const tile_shape& tile);

}  // namespace msabench

// SPDX-License-Identifier: Apache-2.0
// Tiles of query tokens in a ragged batch, whose rows a thread block computes.
#pragma once

#include <cstdint>

#include "kernels/common/lengths.h"

namespace msabench::cuda {

/// Consecutive tokens of one sequence; the first of them sees so many keys.
struct query_tile {
  std::int64_t sequence, first_row, first_sees;
  int tokens;
};

/// Sequence b begins at tile cu_seqlens_q[b] / tile_tokens + b. That leaves each enough tiles, some of them empty, and
/// spares counting those of the sequences before it.
__device__ inline query_tile tile_at(const kernels::lengths& rows, std::int64_t tile, int tile_tokens) {
  const std::int32_t* const starts = rows.cu_seqlens_q;
  std::int64_t b = 0, most = rows.batch - 1;
  while (b < most) {
    const std::int64_t middle = (b + most + 1) / 2;
    if (starts[middle] / tile_tokens + middle <= tile)
      b = middle;
    else
      most = middle - 1;
  }
  const std::int64_t after = starts[b + 1];
  const std::int64_t first = starts[b] + (tile - starts[b] / tile_tokens - b) * tile_tokens;
  const std::int64_t tokens = max(std::int64_t{0}, min(after - first, std::int64_t{tile_tokens}));
  return {b, first, rows.kv_lens[b] - (after - first) + 1, static_cast<int>(tokens)};
}

}  // namespace msabench::cuda

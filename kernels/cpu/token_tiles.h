// SPDX-License-Identifier: Apache-2.0
// A ragged batch cut into tiles of neighbouring tokens of one sequence.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/common/lengths.h"
#include "kernels/cpu/tile.h"

namespace msabench::cpu {

struct token_tile {
  std::int64_t sequence;
  std::int64_t first_row;  ///< of token tensors
  std::int64_t tokens;
};

class token_tiles {
 public:
  /// `starts` holds batch + 1 numbers and must outlive this.
  token_tiles(const kernels::lengths& rows, std::int64_t tile_tokens, std::int64_t* starts)
      : rows_(rows), tile_tokens_(tile_tokens), starts_(starts) {
    starts[0] = 0;
    for (std::int64_t b = 0; b < rows.batch; ++b) {
      const std::int64_t tokens = rows.cu_seqlens_q[b + 1] - rows.cu_seqlens_q[b];
      starts[b + 1] = starts[b] + ceil_div(tokens, tile_tokens);
    }
  }

  std::int64_t count() const { return starts_[rows_.batch]; }

  token_tile at(std::int64_t index) const {
    const std::int64_t b = std::upper_bound(starts_, starts_ + rows_.batch, index) - starts_ - 1;
    const std::int64_t first = rows_.cu_seqlens_q[b] + (index - starts_[b]) * tile_tokens_;
    return {b, first, std::min<std::int64_t>(tile_tokens_, rows_.cu_seqlens_q[b + 1] - first)};
  }

 private:
  const kernels::lengths& rows_;
  std::int64_t tile_tokens_;
  const std::int64_t* starts_;
};

/// Most tiles that so many tokens of so many sequences make.
constexpr std::int64_t most_tiles(std::int64_t tokens, std::int64_t batch, std::int64_t tile_tokens) {
  return std::min(tokens, ceil_div(tokens, tile_tokens) + batch);
}

/// Below that many tasks some threads would be idle while others work.
constexpr std::int64_t enough_tasks(int threads) { return 4 * std::int64_t{threads}; }

}  // namespace msabench::cpu

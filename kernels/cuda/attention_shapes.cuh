// SPDX-License-Identifier: Apache-2.0
// The thread blocks that attention is compiled for.
#pragma once

#include "kernels/cuda/attention_rows.cuh"

namespace msabench::cuda {

constexpr int most_columns = 128, most_topk = 1024, part_keys = 128;

/// Rows of one token, whose keys nobody shares: decoding, and selected blocks.
constexpr int narrow_rows = 16, narrow_tile_keys = 32;
template <class T, int columns>
using narrow_shape = attention_shape<T, columns, 1, 1, narrow_tile_keys>;

/// Rows of many tokens over the same keys.
constexpr int wide_rows = 128, wide_tile_keys = 64;
template <class T, int columns>
using wide_shape = attention_shape<T, columns, 4, 2, wide_tile_keys>;

constexpr int shape_columns(bool wide, int d) {
  const int least = wide ? 80 : 64;  // the head dims of a vision tower and of small models
  return d <= least ? least : most_columns;
}

}  // namespace msabench::cuda

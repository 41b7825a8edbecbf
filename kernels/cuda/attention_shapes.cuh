// SPDX-License-Identifier: Apache-2.0
// The thread blocks that attention is compiled for.
#pragma once

#include "kernels/cuda/attention_rows.cuh"

namespace msabench::cuda {

inline constexpr int most_columns = 128, most_topk = 1024;

/// Rows of one token, whose keys no other token shares. They are summed in parts of so many keys, wherever the keys of a
/// thread block begin, and so have the same bits in every kernel: all scores of a part, then its weights relative to the
/// greatest, then its values; a row's parts in their order. Weights are added up in quarters.
inline constexpr int part_keys = 128, part_quarters = 4, narrow_rows = 16;
template <class T, int columns>
using part_shape = attention_shape<T, columns, part_quarters, 1, part_keys>;

/// Rows of many tokens over the same keys.
inline constexpr int wide_rows = 128, wide_tile_keys = 64;
template <class T, int columns>
using wide_shape = attention_shape<T, columns, 4, 2, wide_tile_keys>;

constexpr int shape_columns(bool wide, int d) {
  const int least = wide ? 80 : 64;  // the head dims of a vision tower and of small models
  return d <= least ? least : most_columns;
}

}  // namespace msabench::cuda

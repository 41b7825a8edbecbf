// SPDX-License-Identifier: Apache-2.0
// Ragged batches: which sequence a query token belongs to, and where in it.
#pragma once

#include <cstdint>

#include "kernels/common/types.h"

namespace msabench::kernels {

/// Where a query token stands in its sequence, which is how much of it the token sees.
struct row_place {
  std::int64_t sequence;  ///< b
  std::int64_t length;    ///< N_b
  std::int64_t position;  ///< pos; negative for a padding token, which sees nothing
};

struct lengths {
  const std::int32_t* cu_seqlens_q;  ///< [batch + 1]
  const std::int32_t* kv_lens;       ///< [batch]; nullptr = segments, whose tokens see each other
  std::int64_t batch;
  std::int64_t row_bound;  ///< rows of the token tensors, T at most

  /// T. Without sequences there is nothing to read it from.
  MSABENCH_HOST_DEVICE std::int64_t tokens() const { return batch == 0 ? 0 : cu_seqlens_q[batch]; }

  /// The last token of this call is the last token of the sequence, however many came before.
  MSABENCH_HOST_DEVICE row_place place(std::int64_t row) const {
    const std::int64_t b = sequence_of(row);
    // Whoever sees all keys sees them as the last token does.
    if (kv_lens == nullptr) {
      const std::int64_t length = cu_seqlens_q[b + 1] - cu_seqlens_q[b];
      return {b, length, length - 1};
    }
    const std::int64_t after = cu_seqlens_q[b + 1] - row;
    return {b, kv_lens[b], kv_lens[b] - after};
  }

 private:
  /// Empty sequences repeat an entry; the last one that starts at or before the row is its own.
  MSABENCH_HOST_DEVICE std::int64_t sequence_of(std::int64_t row) const {
    std::int64_t first = 0, count = batch;
    while (count > 0) {
      const std::int64_t half = count / 2;
      if (cu_seqlens_q[first + half] <= row) {
        first += half + 1;
        count -= half + 1;
      } else {
        count = half;
      }
    }
    return first - 1;
  }
};

/// own + 1: visible blocks 0..own; 0 for a padding token, whose position C++ would round to block 0.
MSABENCH_HOST_DEVICE inline std::int64_t visible_blocks(const row_place& place, std::int32_t block_size) {
  return place.position < 0 ? 0 : place.position / block_size + 1;
}

}  // namespace msabench::kernels

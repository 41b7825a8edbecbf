// SPDX-License-Identifier: Apache-2.0
// Ragged batches: which sequence a query token belongs to, and where in it.
#pragma once

#include <algorithm>
#include <cstdint>

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

  /// T. Without sequences there is nothing to read it from.
  std::int64_t tokens() const { return batch == 0 ? 0 : cu_seqlens_q[batch]; }

  /// The last token of this call is the last token of the sequence, however many came before.
  row_place place(std::int64_t row) const {
    // Empty sequences repeat an entry; the last one that starts at or before the row is its own.
    const std::int64_t b = std::upper_bound(cu_seqlens_q, cu_seqlens_q + batch, row) - cu_seqlens_q - 1;
    // Whoever sees all keys sees them as the last token does.
    if (kv_lens == nullptr) {
      const std::int64_t length = cu_seqlens_q[b + 1] - cu_seqlens_q[b];
      return {b, length, length - 1};
    }
    const std::int64_t after = cu_seqlens_q[b + 1] - row;
    return {b, kv_lens[b], kv_lens[b] - after};
  }
};

/// own + 1: visible blocks 0..own; 0 for a padding token, whose position C++ would round to block 0.
inline std::int64_t visible_blocks(const row_place& place, std::int32_t block_size) {
  return place.position < 0 ? 0 : place.position / block_size + 1;
}

}  // namespace msabench::kernels

// SPDX-License-Identifier: Apache-2.0
// What a given selection reads, counted from its ids: the numbers that the work model can otherwise only bound.
#pragma once

#include <cstdint>
#include <span>

#include "core/pairs.h"

namespace msabench {

struct selection_counts {
  std::int64_t selected_pairs = 0;       // selected and visible (row, KV head, key) triples
  std::int64_t distinct_keys = 0;        // (sequence, KV head, key) that some row selects and sees
  std::int64_t distinct_index_keys = 0;  // (sequence, key) that some row and head selects and sees
  // Blocks that tiles of `tile_tokens` query tokens read: for every KV head, tile and sequence the size of the union of
  // their rows' blocks. Tiles start at the first row of each sequence.
  std::int64_t tile_blocks = 0;
};

// ids [T][kv_heads][topk] as `select` returns them, T = query_rows(batch). Read leniently: the distinct ids in 0 .. own of
// a row count, whatever their order; everything else is ignored. suite_error if ids has another size or tile_tokens < 1.
selection_counts count_selection(std::span<const std::int32_t> ids, batch_lengths batch, std::int64_t kv_heads,
                                 std::int64_t block, std::int64_t topk, std::int64_t tile_tokens = 1);

}  // namespace msabench

// SPDX-License-Identifier: Apache-2.0
#include "core/selection_counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/error.h"

namespace msabench {

namespace {

// Blocks of one sequence and KV head: which row and which tile met them last, and how far they were seen.
struct block_log {
  explicit block_log(std::int64_t blocks) : row(blocks, -1), tile(blocks, -1), keys(blocks, 0) {}
  std::vector<std::int64_t> row, tile, keys;
};

std::int64_t sum(const std::vector<std::int64_t>& values) {
  std::int64_t total = 0;
  for (const auto v : values) total += v;
  return total;
}

}  // namespace

selection_counts count_selection(std::span<const std::int32_t> ids, batch_lengths batch, std::int64_t kv_heads,
                                 std::int64_t block, std::int64_t topk, std::int64_t tile_tokens) {
  const std::int64_t rows = query_rows(batch);
  if (kv_heads < 1 || block < 1 || topk < 1 || tile_tokens < 1 ||
      static_cast<std::int64_t>(ids.size()) != rows * kv_heads * topk)
    throw suite_error(fmt::format("work model: {} ids for {} rows of {} heads x {}, block {}, tiles of {}", ids.size(),
                                  rows, kv_heads, topk, block, tile_tokens));
  selection_counts counts;
  std::int64_t first_row = 0;
  for (const auto& s : batch) {
    const std::int64_t blocks = (s.kv_len + block - 1) / block;
    std::vector<std::int64_t> seen_by_any(blocks, 0);
    for (std::int64_t head = 0; head < kv_heads; ++head) {
      block_log log(blocks);
      for (std::int64_t i = std::max<std::int64_t>(0, s.q_len - s.kv_len); i < s.q_len; ++i) {
        const std::int64_t position = s.kv_len - s.q_len + i, tile = i / tile_tokens;
        for (const auto id : ids.subspan(((first_row + i) * kv_heads + head) * topk, topk)) {
          if (id < 0 || id > position / block || log.row[id] == i) continue;
          log.row[id] = i;
          counts.tile_blocks += log.tile[id] != tile;
          log.tile[id] = tile;
          const std::int64_t keys = std::min(block, position + 1 - id * block);
          counts.selected_pairs += keys;
          log.keys[id] = std::max(log.keys[id], keys);
        }
      }
      counts.distinct_keys += sum(log.keys);
      for (std::int64_t b = 0; b < blocks; ++b) seen_by_any[b] = std::max(seen_by_any[b], log.keys[b]);
    }
    counts.distinct_index_keys += sum(seen_by_any);
    first_row += s.q_len;
  }
  return counts;
}

}  // namespace msabench

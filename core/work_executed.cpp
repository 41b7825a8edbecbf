// SPDX-License-Identifier: Apache-2.0
#include "core/work_executed.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/units.h"
#include "core/work.h"

namespace msabench {

namespace {

double real(std::int64_t x) { return static_cast<double>(x); }
std::int64_t whole_tiles(std::int64_t n, std::int64_t tile) { return (n + tile - 1) / tile * tile; }

void require_tile(const problem& p, const tile_shape& tile, std::int64_t heads) {
  if (tile.tokens < 1 || tile.keys < 1 || tile.tokens > max_size || tile.keys > max_size || tile.rows < 0 ||
      tile.rows > max_size || (tile.rows != 0 && tile.rows < tile.tokens * heads))
    throw suite_error(fmt::format("work model: {} in tiles of {} tokens x {} heads, {} rows, {} keys",
                                  name(p.operation), tile.tokens, heads, tile.rows, tile.keys));
}

// Computed keys, summed over tiles that run up to the diagonal. Tiles of padding rows alone compute nothing.
double diagonal_keys(batch_lengths batch, const tile_shape& tile) {
  double keys = 0;
  for (const auto& s : batch)
    for (std::int64_t first = 0; first < s.q_len; first += tile.tokens) {
      const std::int64_t last = std::min(s.q_len, first + tile.tokens) - 1;
      keys += real(whole_tiles(std::max<std::int64_t>(0, s.kv_len - s.q_len + last + 1), tile.keys));
    }
  return keys;
}

double block_keys(const problem& p, batch_lengths batch, const tile_shape& tile,
                  std::optional<std::int64_t> tile_blocks) {
  if (!tile_blocks && tile.tokens > 1)
    throw suite_error(fmt::format("work model: the blocks of tiles of {} tokens depend on the ids", tile.tokens));
  const double blocks = tile_blocks ? real(*tile_blocks) : p.hkv * selected_blocks(batch, p.block, p.topk);
  return blocks * real(whole_tiles(p.block, tile.keys));
}

}  // namespace

double executed_flops(const problem& p, batch_lengths batch, const tile_shape& tile,
                      std::optional<std::int64_t> tile_blocks) {
  const bool index_branch = p.operation == op::score || p.operation == op::index;
  const std::int64_t heads = index_branch ? p.hi : p.group();
  require_tile(p, tile, heads);
  const double rows = real(tile.rows != 0 ? tile.rows : tile.tokens * heads);
  const bool all_visible = index_branch || p.operation == op::dense || p.operation == op::dense_backward ||
                           (p.operation == op::kl && p.kl_warm_up != 0);
  // One set of keys for all index heads, one for each KV head.
  const double tile_keys = !all_visible   ? block_keys(p, batch, tile, tile_blocks)
                           : index_branch ? diagonal_keys(batch, tile)
                                          : p.hkv * diagonal_keys(batch, tile);
  if (p.operation != op::kl) return flops_per_pair(p) / real(index_branch ? p.hi : p.hq) * rows * tile_keys;
  return 2.0 * p.d * rows * tile_keys + 2.0 * 3 * p.di * real(tile.tokens) * tile_keys / p.hkv * p.hi;
}

double executed_flops_vision(const problem& p, std::span<const grid> items, const tile_shape& tile) {
  if (p.operation != op::vit_attend && p.operation != op::vit3d)
    throw suite_error(fmt::format("work model: {} attends to no segments", name(p.operation)));
  require_tile(p, tile, 1);
  segment_pairs(items, p.vit_window);  // refuses items without patches
  const auto pairs = [&](std::int64_t n) {
    const std::int64_t tiles = (n + tile.tokens - 1) / tile.tokens;
    return real(tiles) * real(tile.rows != 0 ? tile.rows : tile.tokens) * real(whole_tiles(n, tile.keys));
  };
  double sum = 0;
  for (const auto& g : items) {
    const std::int64_t length = p.vit_window == 0 ? g.t : std::min<std::int64_t>(g.t, p.vit_window);
    sum += real(g.t / length) * pairs(length * g.h * g.w) + pairs(g.t % length * g.h * g.w);
  }
  return 4.0 * p.d * p.hq * sum;
}

}  // namespace msabench

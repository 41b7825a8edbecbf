// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/tile_walk.h"

namespace msabench::cpu {

std::int64_t key_list::tiles() const {
  if (blocks == nullptr || block < least_block_tile) return ceil_div(count, tile_keys);
  const std::int64_t last = count == 0 ? 0 : (count - 1) % block + 1;  // keys of the last block
  return (count - last) / block * ceil_div(block, tile_keys) + ceil_div(last, tile_keys);
}

key_range key_list::tile(std::int64_t index) const {
  std::int64_t first = index * tile_keys, most = tile_keys;
  if (blocks != nullptr && block >= least_block_tile) {
    const std::int64_t parts = ceil_div(block, tile_keys), part = index % parts;
    first = index / parts * block + part * tile_keys;
    most = std::min<std::int64_t>(most, block - part * tile_keys);
  }
  return {first, static_cast<std::int32_t>(std::min(most, count - first))};
}

void gather(const cache& from, const key_list& keys, const key_range& range, const char** to) {
  const std::int64_t step = from.token_stride * bytes_of(from.type);
  for (std::int64_t i = 0; i < range.count;) {
    const std::int64_t position = keys.position(range.first + i);
    std::int64_t run = range.count - i;
    if (keys.blocks != nullptr) run = std::min(run, keys.block - (range.first + i) % keys.block);
    if (from.block_table != nullptr) run = std::min(run, from.page_size - position % from.page_size);
    const char* address = from.token(keys.sequence, keys.kv_head, position);
    for (std::int64_t j = 0; j < run; ++j) to[i + j] = address + j * step;
    i += run;
  }
}

key_list keys_of_blocks(std::int64_t sequence, std::int32_t kv_head, const std::int32_t* blocks, std::int32_t count,
                        std::int32_t block, std::int64_t seen) {
  std::int64_t keys = std::int64_t{count} * block;
  // Only the last visible block can be incomplete.
  if (count > 0) keys += std::min<std::int64_t>(0, seen - (blocks[count - 1] + std::int64_t{1}) * block);
  return {sequence, kv_head, blocks, block, keys};
}

std::int32_t row_blocks(const std::int32_t* ids, std::int32_t topk, std::int64_t visible, std::int32_t* blocks) {
  std::int32_t* end =
      std::copy_if(ids, ids + topk, blocks, [visible](std::int32_t id) { return id >= 0 && id < visible; });
  // Canonical rows ascend already.
  if (std::adjacent_find(blocks, end, std::greater_equal<>()) != end) {
    std::sort(blocks, end);
    end = std::unique(blocks, end);
  }
  return static_cast<std::int32_t>(end - blocks);
}

void clear_rows(std::int64_t rows, std::int64_t stride, const partial_rows& to) {
  std::fill(to.sums, to.sums + rows * stride, 0.0f);
  std::fill(to.references, to.references + rows, -std::numeric_limits<float>::infinity());
  std::fill(to.weights, to.weights + rows, 0.0f);
}

partial_rows rows_from(const partial_rows& rows, std::int64_t first, std::int64_t stride) {
  return {rows.sums + first * stride, rows.references + first, rows.weights + first};
}

void attend_tiles(const attention_caches& caches, const key_list& keys, const query_rows& rows, std::int64_t first,
                  std::int64_t end, const attention_scratch& scratch, const partial_rows& to) {
  clear_rows(rows.count(), sum_columns(caches), to);
  tile_walk walk(caches, keys, scratch);
  if (first < end) walk.announce(keys.tile(first), 0);
  for (std::int64_t t = first; t < end; ++t) {
    const key_range range = keys.tile(t);
    const std::int64_t first_token = std::max<std::int64_t>(0, range.first - rows.first_visible + 1);
    if (first_token >= rows.tokens) return;
    // Where keys of all heads lie side by side, taking the heads in turn reads memory in its order.
    for (std::int32_t head = 0; head < rows.heads; ++head) {
      walk.take();
      if (head + 1 < rows.heads) {
        walk.announce(range, head + 1);
      } else if (t + 1 < end) {
        walk.announce(keys.tile(t + 1), 0);
      }
      const token_range run{head, static_cast<std::int32_t>(first_token), rows.tokens};
      walk.attend(rows, range, &run, 1, to);
    }
  }
}

void attend_list(const attention_caches& caches, const key_list& keys, const query_rows& rows, std::int64_t chunk,
                 const attention_scratch& scratch) {
  const std::int64_t columns = sum_columns(caches), tiles = keys.tiles();
  clear_rows(rows.count(), columns, scratch.total);
  for (std::int64_t first = 0; first < tiles; first += chunk) {
    attend_tiles(caches, keys, rows, first, std::min(first + chunk, tiles), scratch, scratch.chunk);
    merge_rows(scratch.chunk, rows.count(), columns, scratch.total);
  }
}

float log_sum(const partial_rows& rows, std::int64_t row) {
  if (rows.weights[row] == 0) return -std::numeric_limits<float>::infinity();
  // In double: the declared error is absolute, and fp32 misses it once the sum passes a few hundred.
  const double exponent = rows.references[row] + std::log2(static_cast<double>(rows.weights[row]));
  return static_cast<float>(exponent * std::numbers::ln2);
}

partial_rows take_rows(carver& memory, double rows, std::int64_t columns) {
  partial_rows taken{};
  taken.sums = memory.take<float>(rows * static_cast<double>(columns));
  taken.references = memory.take<float>(rows);
  taken.weights = memory.take<float>(rows);
  return taken;
}

attention_scratch take_scratch(carver& memory, const scratch_sizes& sizes) {
  const auto tokens = static_cast<double>(sizes.tokens), d = static_cast<double>(sizes.d);
  const auto rows = static_cast<double>(sizes.rows());
  attention_scratch taken{};
  taken.queries = memory.take<float>(rows * d);
  taken.scores = memory.take<float>(rows * tile_keys);
  taken.panel = memory.take<float>(std::max<double>(d, tile_keys) * panel_columns);
  for (tile_addresses* addresses : {&taken.addresses, &taken.ahead}) {
    addresses->keys = memory.take<const char*>(tile_keys);
    addresses->values = memory.take<const char*>(tile_keys);
  }
  taken.blocks = memory.take<std::int32_t>(tokens * static_cast<double>(sizes.capacity));
  taken.all_blocks = memory.take<std::int32_t>(tokens * static_cast<double>(sizes.capacity));
  taken.shared = memory.take<shared_row>(tokens);
  taken.runs = memory.take<token_range>(tokens);
  taken.chunk = take_rows(memory, rows, sizes.columns);
  taken.total = take_rows(memory, rows, sizes.columns);
  return taken;
}

}  // namespace msabench::cpu

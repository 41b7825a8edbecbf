// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>

#include "kernels/cpu/attention.h"

namespace msabench::cpu {

void gather(const cache& from, const key_list& keys, std::int64_t first, std::int64_t count, const char** to) {
  const std::int64_t step = from.token_stride * bytes_of(from.type);
  for (std::int64_t i = 0; i < count;) {
    const std::int64_t position = keys.position(first + i);
    std::int64_t run = count - i;
    if (keys.blocks != nullptr) run = std::min(run, keys.block - (first + i) % keys.block);
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

void attend_list(const attention_caches& caches, const key_list& keys, const query_rows& rows, std::int64_t chunk,
                 const attention_scratch& scratch) {
  const std::int64_t all_rows = std::int64_t{rows.tokens} * rows.group, columns = sum_columns(caches);
  clear_rows(all_rows, columns, scratch.total);
  for (std::int64_t first = 0; first < keys.count; first += chunk) {
    attend_chunk(caches, keys, rows, first, std::min(chunk, keys.count - first), scratch, scratch.chunk);
    merge_rows(scratch.chunk, all_rows, columns, scratch.total);
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
  const auto rows = static_cast<double>(sizes.rows), d = static_cast<double>(sizes.d);
  attention_scratch taken{};
  taken.queries = memory.take<float>(rows * d);
  taken.scores = memory.take<float>(rows * tile_keys);
  taken.key_panels = memory.take<float>(d * tile_keys);
  taken.value_panels = memory.take<float>(static_cast<double>(sizes.columns) * tile_keys);
  taken.addresses = memory.take<const char*>(tile_keys);
  taken.blocks = memory.take<std::int32_t>(static_cast<double>(sizes.capacity));
  taken.chunk = take_rows(memory, rows, sizes.columns);
  taken.total = take_rows(memory, rows, sizes.columns);
  return taken;
}

}  // namespace msabench::cpu

// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/readers.h"

#include <algorithm>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/parallel.h"

namespace msabench::cpu {

block_readers::block_readers(carver& memory, std::int64_t tokens, std::int64_t batch, std::int32_t kv_heads,
                             std::int32_t topk, std::int64_t max_blocks, int threads)
    : batch_(batch), max_blocks_(max_blocks), most_(tokens * topk) {
  const auto heads = static_cast<double>(kv_heads);
  starts_ = memory.take<std::int64_t>(heads * (static_cast<double>(batch) * static_cast<double>(max_blocks) + 1));
  tokens_ = memory.take<std::int32_t>(heads * static_cast<double>(tokens) * topk);
  blocks_ = memory.take<std::int32_t>(static_cast<double>(threads) * topk);
}

void block_readers::find(const selected_ids& of, int threads) {
  for_each_task(threads, of.kv_heads, [&](std::int64_t head, int thread) {
    std::int64_t* const starts = starts_ + head * (batch_ * max_blocks_ + 1);
    std::int32_t* const tokens = tokens_ + head * most_;
    std::int32_t* const blocks = blocks_ + std::int64_t{thread} * of.topk;
    const auto for_each = [&](const auto& visit) {
      for (std::int64_t row = 0; row < of.rows.tokens(); ++row) {
        const row_place place = of.rows.place(row);
        const std::int32_t count = row_blocks(of.ids + row * of.row_stride + head * of.head_stride, of.topk,
                                              visible_blocks(place, of.block), blocks);
        for (std::int32_t i = 0; i < count; ++i) visit(place.sequence * max_blocks_ + blocks[i], row);
      }
    };
    std::fill_n(starts, batch_ * max_blocks_ + 1, std::int64_t{0});
    for_each([&](std::int64_t block, std::int64_t) { ++starts[block + 1]; });
    for (std::int64_t i = 0; i < batch_ * max_blocks_; ++i) starts[i + 1] += starts[i];
    // Filling moves each start to the next one's place; moving all back by one puts them right again.
    for_each([&](std::int64_t block, std::int64_t row) { tokens[starts[block]++] = static_cast<std::int32_t>(row); });
    for (std::int64_t i = batch_ * max_blocks_; i > 0; --i) starts[i] = starts[i - 1];
    starts[0] = 0;
  });
}

}  // namespace msabench::cpu

// SPDX-License-Identifier: Apache-2.0
// Which tokens read a block: the ids the other way round.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/common/calls.h"
#include "kernels/cpu/tile.h"

namespace msabench::cpu {

using namespace kernels;

/// The ids of a call [T][Hkv][topk], and the batch that they belong to.
struct selected_ids {
  const lengths& rows;
  const std::int32_t* ids;
  std::int64_t row_stride, head_stride;
  std::int32_t kv_heads, block, topk;
  std::int64_t max_blocks;  ///< of a sequence
};

/// For each KV head and block of a sequence the tokens whose selection has it, ascending. Without ids nothing is kept: the
/// readers of a block are all tokens from the first that sees it on.
class block_readers {
 public:
  /// Memory for so many tokens and sequences.
  block_readers(carver& memory, std::int64_t tokens, std::int64_t batch, std::int32_t kv_heads, std::int32_t topk,
                std::int64_t max_blocks, int threads);

  void find(const selected_ids& of, int threads);

  std::span<const std::int32_t> of(std::int32_t kv_head, std::int64_t sequence, std::int64_t block) const {
    const std::int64_t* start = starts_ + (kv_head * batch_ + sequence) * max_blocks_ + block + kv_head;
    return {tokens_ + kv_head * most_ + start[0], static_cast<std::size_t>(start[1] - start[0])};
  }

 private:
  std::int64_t batch_, max_blocks_, most_;
  std::int64_t* starts_;  // [Hkv][batch * max_blocks + 1]
  std::int32_t* tokens_;  // [Hkv][tokens * topk]
  std::int32_t* blocks_;  // [threads][topk]
};

}  // namespace msabench::cpu

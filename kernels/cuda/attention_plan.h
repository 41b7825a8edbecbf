// SPDX-License-Identifier: Apache-2.0
// How attention is cut into thread blocks, from what a problem says alone: the device is not asked.
#pragma once

#include <msabench/plugin.h>

#include <cstdint>

namespace msabench::cuda {

struct attention_plan {
  bool wide;            ///< several warps of a thread block share the keys; otherwise a thread block is a warp
  std::int32_t tokens;  ///< of a tile, at the most
  std::int64_t items;   ///< tiles of all KV heads
  std::int64_t spans;   ///< thread blocks that a tile's keys are divided among
  std::int64_t span_keys;
  std::int32_t rows, columns;  ///< of a thread block, padding included
};

/// Keys that a row can have, in whole blocks; one at least. A segment has no keys but its tokens, so either bound is one of it.
std::int64_t most_keys(const msabench_problem& problem);

attention_plan plan_attention(const msabench_problem& problem);

}  // namespace msabench::cuda

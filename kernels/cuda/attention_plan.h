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

attention_plan plan_attention(const msabench_problem& problem);

}  // namespace msabench::cuda

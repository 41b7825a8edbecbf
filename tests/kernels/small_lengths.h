// SPDX-License-Identifier: Apache-2.0
// The lengths of a batch as tensors.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tests/kernels/buffer.h"

namespace msabench::plugin_test {

struct small_lengths {
  /// (query tokens of this call, tokens in all) of each sequence.
  explicit small_lengths(const std::vector<std::pair<std::int32_t, std::int32_t>>& sequences);

  buffer cu_seqlens_q, cu_seqlens_kv, kv_lens;
  std::int64_t tokens = 0, keys = 0, longest = 0;
};

}  // namespace msabench::plugin_test

// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/small_lengths.h"

#include <algorithm>

namespace msabench::plugin_test {

small_lengths::small_lengths(const std::vector<std::pair<std::int32_t, std::int32_t>>& sequences) {
  const auto batch = static_cast<std::int64_t>(sequences.size());
  cu_seqlens_q = buffer(int32_type, {batch + 1});
  cu_seqlens_kv = buffer(int32_type, {batch + 1});
  kv_lens = buffer(int32_type, {batch});
  cu_seqlens_q.set({0}, 0);
  cu_seqlens_kv.set({0}, 0);
  for (std::int64_t b = 0; b < batch; ++b) {
    const auto [query, length] = sequences[static_cast<std::size_t>(b)];
    tokens += query;
    keys += length;
    longest = std::max<std::int64_t>(longest, length);
    cu_seqlens_q.set({b + 1}, static_cast<double>(tokens));
    cu_seqlens_kv.set({b + 1}, static_cast<double>(keys));
    kv_lens.set({b}, length);
  }
}

}  // namespace msabench::plugin_test

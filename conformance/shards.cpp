// SPDX-License-Identifier: Apache-2.0
#include "conformance/shards.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

namespace msabench {

std::vector<std::int64_t> assign_shards(std::span<const double> work, std::int64_t count) {
  std::vector<std::size_t> heaviest_first(work.size());
  std::iota(heaviest_first.begin(), heaviest_first.end(), std::size_t{0});
  std::ranges::stable_sort(heaviest_first, std::greater<>(), [&](std::size_t i) { return work[i]; });
  // More shards than items stay empty; equal loads go by the number of the shard.
  using load = std::pair<double, std::int64_t>;
  std::priority_queue<load, std::vector<load>, std::greater<>> least;
  for (std::int64_t i = 0; i < std::min(count, static_cast<std::int64_t>(work.size())); ++i) least.emplace(0, i);
  std::vector<std::int64_t> shard_of(work.size());
  for (const std::size_t i : heaviest_first) {
    const auto [so_far, shard] = least.top();
    least.pop();
    shard_of[i] = shard;
    least.emplace(so_far + work[i], shard);
  }
  return shard_of;
}

}  // namespace msabench

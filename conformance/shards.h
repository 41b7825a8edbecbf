// SPDX-License-Identifier: Apache-2.0
// The split of a list into shards of about equal work.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace msabench {

// The shard of each item, 0 to count - 1: the heaviest first, each to the shard that has least so far. Depends on its
// arguments alone, so that machines that know nothing of each other split a list alike.
std::vector<std::int64_t> assign_shards(std::span<const double> work, std::int64_t count);

}  // namespace msabench

// SPDX-License-Identifier: Apache-2.0
// Whole sequences by chunks: which chunks there are, in which order they are measured, and their sums. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/perf_record.h"

namespace msabench {

// The last `query_tokens` of `context` tokens.
struct whole_chunk {
  std::int64_t query_tokens = 0, context = 0;
  bool operator==(const whole_chunk&) const = default;
};

// Chunks of all sequences, each once, by ascending context. The last one of a sequence may be shorter.
std::vector<whole_chunk> chunks_of(std::span<const std::int64_t> contexts, std::int64_t chunk);

// All positions below `count`, such that those up to any of them are spread about evenly: the first, the last, then the
// middles of what lies between. A budget that ends leaves a picture of the whole.
std::vector<std::size_t> spread_order(std::size_t count);

template <class T>
std::vector<T> in_spread_order(std::vector<T> all) {
  std::vector<T> ordered;
  for (const std::size_t at : spread_order(all.size())) ordered.push_back(std::move(all[at]));
  return ordered;
}

// One for each context, operator and implementation of the run's points. `labels` are those of the implementations.
std::vector<perf_whole> wholes_of(const perf_run& run, std::span<const std::int64_t> contexts, std::int64_t chunk,
                                  std::int64_t batch, std::span<const std::string> labels);

}  // namespace msabench

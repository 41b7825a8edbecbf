// SPDX-License-Identifier: Apache-2.0
// What whole sequences would take of which not all chunks were measured.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/perf_record.h"
#include "perf/whole.h"

namespace msabench {

// Time of all chunks by straight lines, in the context, between those that are measured: `us` of the chunks at ascending positions
// `at`, the first and the last of all among them. Chunks count by their tokens.
struct chunk_times {
  std::vector<std::size_t> at;
  std::vector<double> us;
};
double sum_by_lines(std::span<const whole_chunk> chunks, const chunk_times& measured);

// Of a measured chunk from the line between its neighbours, as a share of its time: the largest. 0 of two.
double largest_deviation(std::span<const whole_chunk> chunks, const chunk_times& measured);

// Puts an estimate beside each of `wholes`, all of one context, where a chunk of one of them has no time. Each goes by its own chunks,
// of which there are three at least, the first and the last among them; that of dense takes the fastest at each.
void estimate_wholes(const perf_run& run, std::span<const whole_chunk> chunks, std::span<perf_whole> wholes,
                     std::span<const std::string> labels);

}  // namespace msabench

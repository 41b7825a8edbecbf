// SPDX-License-Identifier: Apache-2.0
// One report of several: shards of a level, runs that were interrupted and taken up again, parts from several sessions. All
// of them have to be of one suite, implementation, device, level and seed.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/record.h"

namespace msabench {

struct named_run {
  std::string source;  // file that it was read from
  run_record run;
};

struct merged_run {
  run_record run;
  std::vector<std::string>
      disagreements;  // a line each: the same case or part, judged differently; the worse one stands
};

// Cases united, in the order of their first report. Shards that nobody has run to their end become parts that were not run.
// usage_error naming what differs, and in which file; at least one run.
merged_run merge_runs(const std::vector<named_run>& runs);

// A line of a file of parts (docs/gpu.md).
struct part_line {
  std::string source;  // "parts.jsonl:3"
  run_part part;
  std::string commit, device;  // of the suite and the machine; no device: nothing ran there
  bool dirty = false;
};
// usage_error naming `field`, file and line.
std::vector<part_line> read_part_lines(const std::filesystem::path& path, std::string_view field = "--parts");

// Adds the lines that are about the implementation (by the hash of its file) or the suite; of lines about the same item a
// failure stands, then what has run. usage_error if one is of another commit or device.
void add_parts(merged_run& into, const std::vector<part_line>& lines);

}  // namespace msabench

// SPDX-License-Identifier: Apache-2.0
// What stands in a report beside judged cases, where a run was made in parts: runs under a memory or race checker, timings,
// shards that nobody has run. Written by ci/gpu as one JSON object a line (docs/gpu.md), kept in merged reports.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace msabench {

// incomplete: it has run, and some of it nobody could judge, or the time did not do for it.
enum class part_state { passed, failed, incomplete, not_run };
std::string_view name(part_state s);  // "not-run"

struct run_part {
  std::string part, item;  // "sanitize", "racecheck"
  std::string of;          // file name of the plugin without its ending, or "suite": what belongs to no implementation
  std::string sha256;      // of the file that was run; empty where none was
  part_state state = part_state::not_run;
  std::string detail;  // one line; why, unless it passed
  double seconds = 0;
};

// "sanitize racecheck of example"
std::string title_of(const run_part& part);

nlohmann::json to_report_json(const run_part& part);
// usage_error naming `path` and the key.
run_part read_run_part(std::string_view path, const nlohmann::json& in);

}  // namespace msabench

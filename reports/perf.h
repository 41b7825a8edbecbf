// SPDX-License-Identifier: Apache-2.0
// A speed run for people: tables in Markdown whose columns are padded, so that a terminal shows them as well, and the
// JSON format msabench.perf/1 (reports/schema/perf-1.schema.json).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/perf_record.h"

namespace msabench {

// Before anything is timed: what will be, and how long it may take.
std::string perf_plan_text(const perf_run& run);
// One point: conditions, limits, a table of its items, and a line for each that has no number.
std::string perf_point_text(const perf_run& run, const perf_point& point);
// What the machine's limits are, or why none are known, on one line without its break: whose products, and which library was
// found where. Empty where nobody looked.
std::string perf_limits_text(const perf_run& run);
// How the run ended, crossovers included.
std::string perf_summary_text(const perf_run& run);

// All of it as a page, with the machine, the command and the limits.
std::string perf_markdown_text(const perf_run& run);
void write_perf_markdown(const perf_run& run, const std::filesystem::path& path, std::string_view field = "--out");

std::string perf_json_text(const perf_run& run);
void write_perf_json(const perf_run& run, const std::filesystem::path& path, std::string_view field = "--json");

}  // namespace msabench

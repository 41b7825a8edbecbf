// SPDX-License-Identifier: Apache-2.0
// What `msabench qualify` leaves for people: one page that says whether an implementation is right, how fast it is, and
// how far that is from what the machine can do.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/perf_record.h"
#include "core/record.h"

namespace msabench {

struct datasheet {
  const run_record& conformance;
  std::vector<perf_run> speed;  // empty: not measured
  std::string why_no_speed;     // one line, where it was not measured or refused
  std::string work_model;       // tables of `msabench flops`, as a terminal shows them
};

std::string datasheet_text(const datasheet& sheet);

// The same in a few lines for a terminal: verdicts, and a line for each point.
std::string datasheet_summary(const datasheet& sheet);

// As write_report_json.
void write_datasheet(const datasheet& sheet, const std::filesystem::path& path, std::string_view field = "--out");

}  // namespace msabench

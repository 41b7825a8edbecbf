// SPDX-License-Identifier: Apache-2.0
// Reports as JSON, format msabench.report/1 (docs/report.md, reports/schema/report-1.schema.json).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/record.h"

namespace msabench {

// Indented UTF-8 text with a final line break.
std::string report_json_text(const run_record& run);

// Written through write_file_atomically: usage_error naming `field` (the flag as the user knows it) if it can't be.
void write_report_json(const run_record& run, const std::filesystem::path& path, std::string_view field = "--json");

// The record that a report was written from. Unknown keys are ignored. usage_error naming `field`, the path and the
// part of the file that is wrong: not JSON, another format or major version, a missing field, a wrong type, an unknown
// verdict, a number that is null without its tag, a summary that contradicts the cases.
run_record read_report(const std::filesystem::path& path, std::string_view field = "FILE");
// The same of a text; `source` stands for the path.
run_record parse_report(std::string_view field, std::string_view source, std::string_view text);

}  // namespace msabench

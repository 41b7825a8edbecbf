// SPDX-License-Identifier: Apache-2.0
// A run as a Markdown page for people: how it ended, what was verified and what was not, the failing cases with the
// command that reproduces each, checks that could not be seen, and where it ran.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/record.h"

namespace msabench {

std::string markdown_text(const run_record& run);

// As write_report_json.
void write_markdown(const run_record& run, const std::filesystem::path& path, std::string_view field = "--out");

// `text` on one line, with everything that Markdown or HTML would interpret escaped; fit for a table cell.
std::string markdown_escaped(std::string_view text);
// `text` on one line as a code span, fit for a table cell.
std::string markdown_code(std::string_view text);

}  // namespace msabench

// SPDX-License-Identifier: Apache-2.0
// A self-test of the suite for people: the kill table, the use that variants make of limits, and what each check alone is
// worth.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/selftest_record.h"

namespace msabench {

std::string selftest_text(const selftest_record& run);
std::string selftest_markdown(const selftest_record& run);

// As write_report_json: indented JSON, and the Markdown page.
void write_selftest(const selftest_record& run, const std::filesystem::path& json,
                    const std::filesystem::path& markdown, std::string_view field = "--out");

// A check and the mutants that no other check fails on any case that was tried: what would live without it.
struct sole_killer {
  std::string check;
  std::vector<std::string> mutants;
};
std::vector<sole_killer> sole_killers(const selftest_record& run);

}  // namespace msabench

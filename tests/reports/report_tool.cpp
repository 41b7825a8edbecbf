// SPDX-License-Identifier: Apache-2.0
// For formats_test.py, which reads reports with other people's parsers.
//
//   report_tool write FOLDER     every sample run as NAME.json, NAME.xml, NAME.md
//   report_tool read FILE        0 and its exit code on stdout, or 64 and one line on stderr
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "core/error.h"
#include "reports/junit.h"
#include "reports/markdown.h"
#include "reports/report_json.h"
#include "tests/reports/sample_runs.h"

int main(int argc, char** argv) {
  using namespace msabench;
  const std::string verb = argc == 3 ? argv[1] : "";
  try {
    if (verb == "write") {
      const std::filesystem::path folder = argv[2];
      for (const auto& [name, run] : sample_runs()) {
        write_report_json(run, folder / (name + ".json"));
        write_junit(run, folder / (name + ".xml"));
        write_markdown(run, folder / (name + ".md"));
      }
      return 0;
    }
    if (verb == "read") {
      fmt::print("{}\n", exit_code_of(read_report(argv[2])));
      return 0;
    }
  } catch (const usage_error& e) {
    fmt::print(stderr, "{}\n", e.what());
    return exit_code::usage;
  }
  fmt::print(stderr, "usage: report_tool write FOLDER | read FILE\n");
  return exit_code::usage;
}

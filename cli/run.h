// SPDX-License-Identifier: Apache-2.0
// The part that check, repro and qualify share: run cases with progress, leave reports, print what a person needs.
#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/implementation.h"
#include "cli/output.h"
#include "conformance/fuzz.h"
#include "conformance/runner.h"
#include "core/case.h"
#include "core/record.h"

namespace msabench {

struct report_paths {
  std::string folder;  // --out: report.json, report.md, junit.xml in it
  std::string junit;   // --junit
  void declare(CLI::App& verb);
  // Tries every path, and those of `out` before, so that nothing is lost after the first case. usage_error.
  void open(const output& out) const;
};

struct run_request {
  std::vector<std::string> argv;
  std::string level;                      // empty: single cases
  std::vector<withdrawn_case> withdrawn;  // of the level
  std::uint64_t seed = 0;
  std::int64_t shard_index = 0, shard_count = 1;
  std::string repro_suffix;  // what a reproducing command needs besides the implementation's options
  std::function<void(const judged_case&)> inspect = {};  // as in runner_options
  bool show_detail = false;                              // every check of every case, not only the failing ones
  std::optional<fuzz_plan> fuzz = {};  // random cases instead of given ones; only failing ones are printed
};

// A run whose cases were printed as they came; the caller prints the summary and leaves the reports.
struct finished_run {
  run_record record;            // marked partial after Ctrl-C
  std::exception_ptr gave_out;  // environment_error that ended it early
};
finished_run run_and_print(const implementation_options& impl, const std::vector<case_spec>& cases,
                           const run_request& request, const output& out);

// Leaves a finished run at all these paths, and says where the folder is.
void leave_reports(const run_record& run, const output& out, const report_paths& paths);

// Returns the exit code. The report is complete on disk when it does, marked partial after Ctrl-C.
int run_and_report(const implementation_options& impl, const std::vector<case_spec>& cases, const run_request& request,
                   const output& out, const report_paths& paths);

}  // namespace msabench

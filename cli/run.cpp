// SPDX-License-Identifier: Apache-2.0
#include "cli/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>

#include "conformance/runner.h"
#include "core/environment_error.h"
#include "core/error.h"
#include "core/files.h"
#include "core/units.h"
#include "host/interrupt.h"
#include "reports/junit.h"
#include "reports/markdown.h"
#include "reports/report_json.h"
#include "reports/text.h"

namespace msabench {

namespace {

// One line that is overwritten on a terminal; nothing elsewhere, where the case lines themselves are the progress.
class progress_line {
 public:
  explicit progress_line(const output& out) : on_(out.is_terminal()), to_(out.people()) {}
  void show(const progress& where) const {
    if (where.done == where.total) return;
    show(fmt::format("{}/{} cases, {} left", where.done, where.total, format_duration_s(where.seconds_left)));
  }
  void show(std::string_view text) const {
    if (!on_) return;
    fmt::print(to_, "\r\033[K{}", text);
    std::fflush(to_);
  }
  void clear() const {
    if (on_) fmt::print(to_, "\r\033[K");
  }

 private:
  bool on_;
  std::FILE* to_;
};

// Of thousands of random cases only those that fail are worth a line.
fuzz_progress print_failures(const run_record& run, const output& out, const progress_line& line) {
  const auto after_each = [&](const case_record& record, double seconds_left) {
    line.clear();
    if (!failure_of(record).empty()) out.print(text_case_line(record, out.colour()));
    line.show(
        fmt::format("{} random cases, {} left", run.cases.size(), format_duration_s(std::max(0.0, seconds_left))));
  };
  const auto after_shrinking = [&](const found_failure& found, const case_record& smallest) {
    line.clear();
    out.print(fmt::format("{} of {}; the smallest case {}that fails alike:\n", found.what, found.found,
                          found.finished ? "" : "found in time "));
    out.print(text_case_line(smallest, out.colour()));
    out.print(text_case_detail(smallest, out.colour()));
  };
  return {after_each, after_shrinking};
}

}  // namespace

void report_paths::declare(CLI::App& verb) {
  verb.add_option("--out", folder, "Leave report.json, report.md and junit.xml in this folder")->type_name("DIR");
  verb.add_option("--junit", junit, "Leave a JUnit file")->type_name("FILE");
}

void report_paths::open(const output& out) const {
  if (out.wants_json() && out.json_path() == junit)
    bad_input("--junit", junit, "names the same file as --json", "give each its own");
  out.open();
  if (!junit.empty()) require_writable("--junit", junit);
  if (folder.empty()) return;
  ensure_folder("--out", folder);
  for (const char* name : {"report.json", "report.md", "junit.xml"})
    require_writable("--out", std::filesystem::path(folder) / name);
}

finished_run run_and_print(const implementation_options& impl, const std::vector<case_spec>& cases,
                           const run_request& request, const output& out) {
  if (cases.empty() && !request.fuzz)
    fmt::print(stderr, "msabench: nothing selected: no case matches; see `msabench list`\n");
  for (const auto& c : cases) require_memory(c);  // before the first one runs, so that nothing is lost
  install_interrupt_handler();  // before the worker starts: it takes a while, and its end is ours to report
  const auto on = impl.make();
  finished_run done{begin_record(request.argv, on->info()), nullptr};
  run_record& run = done.record;
  run.level = request.level;
  run.withdrawn = request.withdrawn;
  run.seed = request.seed;
  run.shard_index = request.shard_index;
  run.shard_count = request.shard_count;

  // Errors of random cases are not compared: twice as many cases say more.
  const auto naive = request.fuzz ? nullptr : impl.make_naive();
  const runner_options options{
      impl.timeout_s(), impl.repro_suffix() + request.repro_suffix, naive.get(), {}, request.inspect};
  const progress_line line(out);
  try {
    if (request.fuzz) fuzz(*on, *request.fuzz, options, run, print_failures(run, out, line));
    run_cases(*on, cases, options, run, [&](const case_record& record, const progress& where) {
      line.clear();
      out.print(text_case_line(record, out.colour()));
      out.print(text_case_detail(record, out.colour()));
      if (request.show_detail) out.print(text_case_checks(record, out.colour()));
      line.show(where);
    });
  } catch (const environment_error&) {
    // The verdicts so far are not lost with the machine.
    done.gave_out = std::current_exception();
    run.partial = true;
  }
  line.clear();
  return done;
}

void leave_reports(const run_record& run, const output& out, const report_paths& paths) {
  out.write(to_report_json(run));
  if (!paths.junit.empty()) write_junit(run, paths.junit);
  if (paths.folder.empty()) return;
  const std::filesystem::path folder(paths.folder);
  write_report_json(run, (folder / "report.json").string(), "--out");
  write_markdown(run, (folder / "report.md").string(), "--out");
  write_junit(run, (folder / "junit.xml").string(), "--out");
  out.print(fmt::format("reports: {0}/report.json {0}/report.md {0}/junit.xml\n", paths.folder));
}

int run_and_report(const implementation_options& impl, const std::vector<case_spec>& cases, const run_request& request,
                   const output& out, const report_paths& paths) {
  paths.open(out);
  const finished_run done = run_and_print(impl, cases, request, out);
  // First, so that a report that can't be written does not take the result along.
  out.print(text_summary(done.record, out.colour()));
  leave_reports(done.record, out, paths);
  if (done.gave_out) std::rethrow_exception(done.gave_out);
  return exit_code_of(done.record);
}

}  // namespace msabench

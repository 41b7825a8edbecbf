// SPDX-License-Identifier: Apache-2.0
// msabench merge: one report out of several of the same suite, implementation and device.
#include <fmt/format.h>

#include <memory>

#include "cli/output.h"
#include "cli/run.h"
#include "cli/verbs.h"
#include "reports/merge.h"
#include "reports/report_json.h"
#include "reports/text.h"

namespace msabench {

namespace {

struct arguments {
  std::vector<std::string> reports, parts;
  output out;
  report_paths paths;
};

int merge(const arguments& a, const std::vector<std::string>& argv) {
  a.paths.open(a.out);
  std::vector<named_run> runs;
  for (const auto& file : a.reports) runs.push_back({file, read_report(file, "REPORT")});
  std::vector<part_line> lines;
  for (const auto& file : a.parts) {
    const auto read = read_part_lines(file);
    lines.insert(lines.end(), read.begin(), read.end());
  }
  merged_run merged = merge_runs(runs);
  add_parts(merged, lines);
  merged.run.argv = argv;
  for (const auto& line : merged.disagreements) a.out.print(fmt::format("disagreement: {}\n", line));
  a.out.print(text_summary(merged.run, a.out.colour()));
  leave_reports(merged.run, a.out, a.paths);
  return exit_code_of(merged.run);
}

}  // namespace

void add_merge(CLI::App& app, invocation& chosen) {
  auto a = std::make_shared<arguments>();
  CLI::App* verb =
      app.add_subcommand("merge", "Make one report of several: shards, interrupted runs, parts from several sessions");
  verb->add_option("REPORT", a->reports, "report.json of the same suite, implementation, device, level and seed")
      ->required();
  verb->add_option("--parts", a->parts, "Also what this file tells of sanitizers and timings (parts.jsonl of ci/gpu)")
      ->type_name("FILE");
  a->paths.declare(*verb);
  a->out.declare(*verb);
  verb->callback([a, &chosen] { chosen.run = [a, &chosen] { return merge(*a, chosen.argv); }; });
}

}  // namespace msabench

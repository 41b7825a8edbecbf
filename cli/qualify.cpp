// SPDX-License-Identifier: Apache-2.0
// msabench qualify: the main job in one command: is it right, how fast is it, and what could it be on this machine?
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/flops_text.h"
#include "cli/run.h"
#include "cli/speed.h"
#include "cli/verbs.h"
#include "conformance/lists.h"
#include "core/environment_error.h"
#include "core/error.h"
#include "core/files.h"
#include "core/model.h"
#include "core/units.h"
#include "host/interrupt.h"
#include "perf/device.h"
#include "perf/work_table.h"
#include "reports/datasheet.h"
#include "reports/junit.h"
#include "reports/perf.h"
#include "reports/report_json.h"
#include "reports/text.h"

namespace msabench {

namespace {

// Best first; a name that is not built into this program is not there.
constexpr const char* preference[] = {"cpu", "naive"};

std::string best_implementation() {
  const auto built_in = builtin_implementations();
  for (const char* wanted : preference)
    for (const auto& each : built_in)
      if (each.name == wanted && each.present) return wanted;
  throw suite_error("no built-in implementation is installed beside the program");
}

// What is timed: one new token after a long context, and a prefill. A share of the budget each.
struct speed_part {
  perf_suite suite;
  const char* contexts;
  double share;
};
constexpr speed_part speed_parts[] = {{perf_suite::decode, "128K,1M", 0.35}, {perf_suite::prefill, "8K", 0.65}};

struct speed_result {
  std::vector<perf_run> runs;
  std::string refused;  // one line; empty: nothing was
  int code = exit_code::ok;
};

// The first code that says more than "ok".
int first_bad(int a, int b) { return a != exit_code::ok ? a : b; }

speed_result measure_speed(const implementation_options& impl, double budget_s, bool tell_busy,
                           const std::vector<std::string>& argv, const output& out) {
  speed_result result;
  for (const speed_part& part : speed_parts) {
    if (interrupted()) break;
    perf_setup setup = setup_of_machine(impl.executor_settings());
    setup.what.suite = part.suite;
    setup.what.contexts = parse_sizes("contexts", part.contexts);
    setup.budget_s = budget_s * part.share;
    setup.tell_busy = tell_busy;
    try {
      const perf_session session({&impl.reference(), 1}, impl.executor_settings(), setup);
      perf_run run = begin_speed_run(argv, setup, session);
      const std::exception_ptr gave_out = measure_and_print(setup, session, out, run);
      result.code = first_bad(result.code, exit_code_of(run));
      result.runs.push_back(std::move(run));
      if (gave_out) std::rethrow_exception(gave_out);
    } catch (const environment_error& e) {
      result.refused = e.what();
      result.code = first_bad(result.code, exit_code::environment_refused);
      break;
    }
  }
  return result;
}

// At the limits that were just measured here; without them nothing is said of this machine.
std::string work_model_text(const std::vector<perf_run>& runs) {
  if (runs.empty() || !runs.back().ceilings.known()) return {};
  const perf_ceilings& seen = runs.back().ceilings;
  work_request request;
  request.model = find_model("model", "m3");
  request.contexts = {8 << 10, 32 << 10, 128 << 10, 1 << 20};
  request.device = {"here", "this machine, as measured in this run", std::nullopt,
                    ceilings{seen.flops, seen.bytes_per_s, seen.source}};
  return flops_text(make_work_table(request));
}

struct arguments {
  std::string impl, budget_s = "200", busy = "refuse";
  bool without_speed = false;
  output out;
  report_paths paths;
};

int qualify(const arguments& a, const std::vector<std::string>& argv) {
  const double budget_s = parse_seconds("--budget-s", a.budget_s);
  const bool tell_busy = tells_when_busy(a.busy);
  implementation_options impl;
  impl.choose(a.impl.empty() ? best_implementation() : a.impl);
  impl.resolve();
  if (a.paths.folder.empty()) bad_input("--out", "", "is empty", "a folder for the datasheet and its reports");
  a.paths.open(a.out);
  const std::filesystem::path folder(a.paths.folder);
  for (const speed_part& part : speed_parts)
    if (!a.without_speed) require_writable("--out", folder / fmt::format("perf-{}.json", name(part.suite)));

  a.out.print(fmt::format("msabench qualify: conformance, level smoke, implementation {}\n", impl.reference().label));
  run_request request;
  request.argv = argv;
  request.level = "smoke";
  const case_list list = load_list(request.level);
  request.withdrawn = withdrawn_of(list, {});
  const finished_run right = run_and_print(impl, choose(list, {}), request, a.out);
  a.out.print(text_summary(right.record, a.out.colour()));

  speed_result fast;
  if (a.without_speed)
    fast.refused = "left out by --without-speed";
  else if (!interrupted() && !right.gave_out)
    fast = measure_speed(impl, budget_s, tell_busy, argv, a.out);
  if (interrupted())
    fast.refused = "interrupted";
  else if (right.gave_out)
    fast.refused = "judging could not be finished";
  const datasheet sheet{right.record, fast.runs, fast.refused, work_model_text(fast.runs)};
  a.out.print("\n" + datasheet_summary(sheet));

  a.out.write(to_report_json(right.record));
  if (!a.paths.junit.empty()) write_junit(right.record, a.paths.junit);
  write_report_json(right.record, (folder / "report.json").string(), "--out");
  write_junit(right.record, (folder / "junit.xml").string(), "--out");
  for (const perf_run& run : fast.runs) write_perf_json(run, folder / fmt::format("perf-{}.json", run.suite), "--out");
  write_datasheet(sheet, folder / "report.md", "--out");
  a.out.print(fmt::format("\nreports: {0}/report.md {0}/report.json {0}/junit.xml\n", a.paths.folder));
  if (right.gave_out) std::rethrow_exception(right.gave_out);
  const int code = first_bad(exit_code_of(right.record), fast.code);
  return code == exit_code::ok && interrupted() ? exit_code::partial : code;
}

}  // namespace

void add_qualify(CLI::App& app, invocation& chosen) {
  auto a = std::make_shared<arguments>();
  a->paths.folder = "out/qualify";
  CLI::App* verb = app.add_subcommand(
      "qualify",
      "Judge the best implementation that this machine can run (level smoke), measure it, leave a datasheet");
  verb->add_option("--impl", a->impl, "Implementation: a built-in name or a plugin file; default the best built-in one")
      ->type_name("NAME|FILE.so");
  verb->add_option("--budget-s", a->budget_s, "Seconds that measuring may take")->type_name("S")->capture_default_str();
  verb->add_option("--busy", a->busy, "refuse: no numbers from a busy machine; tell: numbers with a remark")
      ->type_name("WORD")
      ->capture_default_str();
  verb->add_flag("--without-speed", a->without_speed, "Judge only, for machines that others use at the same time");
  a->paths.declare(*verb);
  a->out.declare(*verb);
  verb->callback([a, &chosen] { chosen.run = [a, &chosen] { return qualify(*a, chosen.argv); }; });
}

}  // namespace msabench

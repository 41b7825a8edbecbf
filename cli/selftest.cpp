// SPDX-License-Identifier: Apache-2.0
// msabench selftest: whether the suite tells right from wrong.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "cli/output.h"
#include "cli/selection.h"
#include "cli/suite_version.h"
#include "cli/verbs.h"
#include "conformance/selftest.h"
#include "core/error.h"
#include "core/files.h"
#include "core/units.h"
#include "host/interrupt.h"
#include "reports/selftest.h"

namespace msabench {

namespace {

struct arguments {
  selftest_setup setup;
  std::string threads = "1", device, timeout, folder;
  output out;
};

selftest_setup resolve(const arguments& a) {
  selftest_setup setup = a.setup;
  constexpr std::string_view checks[] = {"K0", "K1", "K2", "K3", "K4", "K5", "K8"};
  if (!setup.without.empty() && std::ranges::find(checks, setup.without) == std::end(checks))
    bad_input("--without", setup.without, "no check that can be left out",
              fmt::format("one of {}", fmt::join(checks, ", ")));
  const auto threads = parse_uint64("--threads", a.threads);
  if (threads < 1 || threads > most_threads)
    bad_input("--threads", a.threads, "is out of range", fmt::format("1 to {}", most_threads));
  setup.threads = static_cast<int>(threads);
  if (!a.device.empty()) setup.where = device_from_text("--device", a.device);
  if (!a.timeout.empty()) setup.timeout_s = parse_seconds("--timeout-s", a.timeout);
  return setup;
}

int selftest(const arguments& a) {
  const selftest_setup setup = resolve(a);
  const std::filesystem::path folder(a.folder);
  a.out.open();
  if (!a.folder.empty()) {
    ensure_folder("--out", a.folder);
    for (const char* name : {"selftest.json", "selftest.md"}) require_writable("--out", folder / name);
  }
  install_interrupt_handler();
  const bool terminal = a.out.is_terminal();
  selftest_record run = run_selftest(built_in_selftest_lists(), setup, [&](const selftest_progress& p) {
    if (terminal) fmt::print(a.out.people(), "\r\033[K{}/{} {}", p.cases_done, p.cases, p.case_name);
    std::fflush(a.out.people());
  });
  if (terminal) fmt::print(a.out.people(), "\r\033[K");
  run.suite_version = suite_version;
  run.suite_commit = suite_commit;
  a.out.print(selftest_text(run));
  a.out.write(to_json(run));
  if (!a.folder.empty()) write_selftest(run, folder / "selftest.json", folder / "selftest.md");
  return exit_code_of(run);
}

}  // namespace

void add_selftest(CLI::App& app, invocation& chosen) {
  auto a = std::make_shared<arguments>();
  CLI::App* verb = app.add_subcommand(
      "selftest",
      "Test the suite itself: kernels with a planted fault have to fail, honest ones in all their variety to pass");
  verb->add_flag("--quick", a->setup.quick, "Run each mutant and variant on the cases that are meant for it only");
  verb->add_option("--only", a->setup.only, "Only mutants and variants whose id or name matches the glob")
      ->type_name("GLOB");
  add_filter_option(*verb, a->setup.filters);
  verb->add_option("--without", a->setup.without,
                   "Judge without a check, to see what it alone is worth; the result is marked invalid")
      ->type_name("CHECK");
  verb->add_option("--mutant", a->setup.more_mutants, "A plugin that has to fail somewhere, too; can be repeated")
      ->type_name("FILE.so[:ARGUMENT]");
  verb->add_option("--variant", a->setup.more_variants, "A plugin that has to pass everywhere, too; can be repeated")
      ->type_name("FILE.so[:ARGUMENT]");
  verb->add_option("--device", a->device, "Where those of --mutant and --variant run; default cpu")
      ->type_name("cpu|cuda[:N]");
  verb->add_option("--threads", a->threads, "Threads that each implementation may use")
      ->type_name("N")
      ->capture_default_str();
  verb->add_option("--timeout-s", a->timeout, "Seconds that one case may take; default from its cost")->type_name("S");
  verb->add_option("--out", a->folder, "Leave selftest.json and selftest.md in this folder")->type_name("DIR");
  a->out.declare(*verb);
  verb->callback([a, &chosen] { chosen.run = [a] { return selftest(*a); }; });
}

}  // namespace msabench

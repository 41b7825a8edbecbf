// SPDX-License-Identifier: Apache-2.0
// msabench qualify: the main job in one command, on the best implementation that this machine can run.
#include <fmt/format.h>

#include <memory>

#include "cli/run.h"
#include "cli/verbs.h"
#include "conformance/lists.h"
#include "core/error.h"

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

}  // namespace

void add_qualify(CLI::App& app, invocation& chosen) {
  struct arguments {
    output out;
    report_paths paths;
  };
  auto a = std::make_shared<arguments>();
  a->paths.folder = "out/qualify";
  CLI::App* verb = app.add_subcommand(
      "qualify", "Judge the best implementation that this machine can run (level smoke) and leave reports");
  a->paths.declare(*verb);
  a->out.declare(*verb);
  verb->callback([a, &chosen] {
    chosen.run = [a, &chosen] {
      implementation_options impl;
      impl.choose(best_implementation());
      impl.resolve();
      a->out.print(
          fmt::format("msabench qualify: conformance, level smoke, implementation {}\n", best_implementation()));
      run_request request;
      request.argv = chosen.argv;
      request.level = "smoke";
      return run_and_report(impl, choose(load_list("smoke"), {}), request, a->out, a->paths);
    };
  });
}

}  // namespace msabench

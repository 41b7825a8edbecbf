// SPDX-License-Identifier: Apache-2.0
// msabench check: judge an implementation on a list of cases.
#include <fmt/format.h>

#include <memory>

#include "cli/recorded.h"
#include "cli/run.h"
#include "cli/selection.h"
#include "cli/verbs.h"
#include "core/units.h"

namespace msabench {

void add_check(CLI::App& app, invocation& chosen) {
  struct arguments {
    implementation_options impl;
    selection_options which;
    recorded_option recorded;
    output out;
    report_paths paths;
    std::string fuzz_text;
  };
  auto a = std::make_shared<arguments>();
  CLI::App* verb = app.add_subcommand("check", "Judge an implementation on a list of cases");
  a->impl.declare(*verb);
  a->which.declare(*verb);
  a->recorded.declare(*verb);
  a->paths.declare(*verb);
  a->out.declare(*verb);
  CLI::Option* fuzz_option =
      verb->add_option("--fuzz", a->fuzz_text,
                       "Random cases for so many seconds instead of a level; what fails is shrunk to a smallest case")
          ->type_name("SECONDS");
  for (const char* of_lists : {"--level", "--filter", "--shard"}) fuzz_option->excludes(of_lists);
  verb->callback([a, &chosen] {
    chosen.run = [a, &chosen] {
      a->impl.resolve();
      const auto selected = a->which.resolve();
      run_request request;
      request.argv = chosen.argv;
      request.seed = selected.seed;
      if (!a->fuzz_text.empty()) {
        request.fuzz = fuzz_plan{parse_seconds("--fuzz", a->fuzz_text), selected.seed, {}};
        for (const auto& o : selected.operators) request.fuzz->operators.push_back(*op_from_name(o));
        return run_and_report(a->impl, {}, request, a->out, a->paths);
      }
      request.level = a->which.level();
      request.shard_index = selected.shard_index;
      request.shard_count = selected.shard_count;
      case_list list = load_list(a->which.level());
      a->recorded.extend(list);
      request.withdrawn = withdrawn_of(list, selected);
      auto cases = choose(list, selected);
      a->recorded.attach(cases);
      request.repro_suffix = a->recorded.repro_suffix(cases);
      return run_and_report(a->impl, cases, request, a->out, a->paths);
    };
  });
}

}  // namespace msabench

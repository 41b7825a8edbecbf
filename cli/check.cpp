// SPDX-License-Identifier: Apache-2.0
// msabench check: judge an implementation on a list of cases.
#include <fmt/format.h>

#include <memory>

#include "cli/recorded.h"
#include "cli/run.h"
#include "cli/selection.h"
#include "cli/verbs.h"

namespace msabench {

void add_check(CLI::App& app, invocation& chosen) {
  struct arguments {
    implementation_options impl;
    selection_options which;
    recorded_option recorded;
    output out;
    report_paths paths;
  };
  auto a = std::make_shared<arguments>();
  CLI::App* verb = app.add_subcommand("check", "Judge an implementation on a list of cases");
  a->impl.declare(*verb);
  a->which.declare(*verb);
  a->recorded.declare(*verb);
  a->paths.declare(*verb);
  a->out.declare(*verb);
  verb->callback([a, &chosen] {
    chosen.run = [a, &chosen] {
      a->impl.resolve();
      const auto selected = a->which.resolve();
      run_request request;
      request.argv = chosen.argv;
      request.level = a->which.level();
      request.seed = selected.seed;
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

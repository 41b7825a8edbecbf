// SPDX-License-Identifier: Apache-2.0
// msabench repro: one case alone, every check shown.
#include <memory>

#include "cli/recorded.h"
#include "cli/run.h"
#include "cli/verbs.h"

namespace msabench {

void add_repro(CLI::App& app, invocation& chosen) {
  struct arguments {
    std::string case_name;
    implementation_options impl;
    recorded_option recorded;
    output out;
    report_paths paths;
  };
  auto a = std::make_shared<arguments>();
  CLI::App* verb = app.add_subcommand("repro", "Run one case alone and show every check");
  verb->add_option("CASE", a->case_name, "Name of the case, e.g. attend/m3/q1.n1M/bf16.paged/needle/s0")->required();
  a->impl.declare(*verb);
  a->recorded.declare(*verb);
  a->paths.declare(*verb);
  a->out.declare(*verb);
  verb->callback([a, &chosen] {
    chosen.run = [a, &chosen] {
      std::vector<case_spec> cases = {parse_case(a->case_name)};
      a->impl.resolve();
      a->recorded.attach(cases);
      run_request request;
      request.argv = chosen.argv;
      request.seed = cases[0].seed;
      request.repro_suffix = a->recorded.repro_suffix(cases);
      request.show_detail = true;
      return run_and_report(a->impl, cases, request, a->out, a->paths);
    };
  });
}

}  // namespace msabench

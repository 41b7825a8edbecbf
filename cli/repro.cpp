// SPDX-License-Identifier: Apache-2.0
// msabench repro: one case alone, every check shown.
#include <memory>

#include "cli/run.h"
#include "cli/verbs.h"

namespace msabench {

void add_repro(CLI::App& app, invocation& chosen) {
  struct arguments {
    std::string case_name;
    implementation_options impl;
    output out;
    report_paths paths;
  };
  auto a = std::make_shared<arguments>();
  CLI::App* verb = app.add_subcommand("repro", "Run one case alone and show every check");
  verb->add_option("CASE", a->case_name, "Name of the case, e.g. attend/m3/q1.n1M/bf16.paged/needle/s0")->required();
  a->impl.declare(*verb);
  a->paths.declare(*verb);
  a->out.declare(*verb);
  verb->callback([a, &chosen] {
    chosen.run = [a, &chosen] {
      const case_spec c = parse_case(a->case_name);
      a->impl.resolve();
      run_request request;
      request.argv = chosen.argv;
      request.seed = c.seed;
      request.show_detail = true;
      return run_and_report(a->impl, {c}, request, a->out, a->paths);
    };
  });
}

}  // namespace msabench

// SPDX-License-Identifier: Apache-2.0
// msabench repro: one case alone, every check shown.
#include <fmt/format.h>

#include <exception>
#include <memory>

#include "cli/recorded.h"
#include "cli/run.h"
#include "cli/verbs.h"
#include "conformance/dump.h"
#include "core/error.h"
#include "core/files.h"
#include "core/units.h"

namespace msabench {

void add_repro(CLI::App& app, invocation& chosen) {
  struct arguments {
    std::string case_name;
    implementation_options impl;
    recorded_option recorded;
    output out;
    report_paths paths;
    std::string dump;
  };
  auto a = std::make_shared<arguments>();
  CLI::App* verb = app.add_subcommand("repro", "Run one case alone and show every check");
  verb->add_option("CASE", a->case_name, "Name of the case, e.g. attend/m3/q1.n1M/bf16.paged/needle/s0")->required();
  a->impl.declare(*verb);
  a->recorded.declare(*verb);
  verb->add_option("--dump", a->dump, "Leave inputs, outputs, expected values and limits in this folder (safetensors)")
      ->type_name("DIR");
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
      if (a->dump.empty()) return run_and_report(a->impl, cases, request, a->out, a->paths);

      require_dumpable("--dump", cases[0]);
      ensure_folder("--dump", a->dump);
      a->out.print(
          fmt::format("dump: up to {} in {}\n", format_bytes(static_cast<double>(dump_bytes(cases[0]))), a->dump));
      // A dump that can't be written doesn't take the verdict along.
      std::exception_ptr not_written;
      request.inspect = [&](const judged_case& judged) {
        try {
          write_dump("--dump", a->dump, judged);
        } catch (const usage_error&) {
          not_written = std::current_exception();
        }
      };
      const int code = run_and_report(a->impl, cases, request, a->out, a->paths);
      if (not_written) std::rethrow_exception(not_written);
      return code;
    };
  });
}

}  // namespace msabench

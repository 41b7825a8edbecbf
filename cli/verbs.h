// SPDX-License-Identifier: Apache-2.0
// The verbs of `msabench`, one file each. add_VERB declares a verb's arguments and says what runs when it is chosen.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace msabench {

struct invocation {
  std::vector<std::string> argv;
  std::function<int()> run;  // set by the verb that was chosen; returns the exit code
};

void add_list(CLI::App& app, invocation& chosen);
void add_describe(CLI::App& app, invocation& chosen);
void add_check(CLI::App& app, invocation& chosen);
void add_repro(CLI::App& app, invocation& chosen);
void add_qualify(CLI::App& app, invocation& chosen);
void add_selftest(CLI::App& app, invocation& chosen);
void add_merge(CLI::App& app, invocation& chosen);
void add_golden(CLI::App& app, invocation& chosen);
void add_probe_numerics(CLI::App& app, invocation& chosen);
void add_env(CLI::App& app, invocation& chosen);
void add_flops(CLI::App& app, invocation& chosen);
void add_perf(CLI::App& app, invocation& chosen);

}  // namespace msabench

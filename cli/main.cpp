// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "cli/suite_version.h"
#include "cli/verbs.h"
#include "core/environment_error.h"
#include "core/error.h"
#include "core/verdict.h"

namespace msabench {

namespace {

std::string version_text() {
  const std::string commit =
      std::strcmp(suite_commit, "unknown") == 0
          ? ""
          : fmt::format(" ({}{})", std::string(suite_commit).substr(0, 12), suite_dirty ? ", changed" : "");
  return fmt::format("msabench {}{}, contract 1.0, plugin interface 1.0, report 1", suite_version, commit);
}

void complain(const std::string& line) { fmt::print(stderr, "msabench: error: {}\n", line); }

// CLI11's messages may span lines and leave the remedy out.
int refuse_arguments(const CLI::App& app, const CLI::ParseError& e) {
  const auto verbs = app.get_subcommands();
  const std::string help = verbs.empty() ? "msabench --help" : "msabench " + verbs[0]->get_name() + " --help";
  complain(fmt::format("arguments: {}; see `{}`", one_line(e.what(), 200), help));
  return exit_code::usage;
}

// An empty value, as an unset variable of a script gives it, would otherwise read as an option that is left out.
void refuse_empty_values(CLI::App& app) {
  for (CLI::Option* option : app.get_options())
    if (option->get_items_expected_max() > 0)
      option->check(CLI::Validator(
          [](const std::string& value) { return value.empty() ? "is empty; give a value or leave it out" : ""; }, ""));
  for (CLI::App* verb : app.get_subcommands(nullptr)) refuse_empty_values(*verb);
}

// CLI11 says of a misspelt verb only that one is required.
void refuse_unknown_verb(const CLI::App& app, int argc, char** argv, int at) {
  const auto verbs = app.get_subcommands(nullptr);
  if (verbs.empty() || at >= argc || argv[at][0] == '-') return;
  std::string known;
  for (const CLI::App* verb : verbs) {
    if (verb->get_name() == argv[at]) return refuse_unknown_verb(*verb, argc, argv, at + 1);
    known += (known.empty() ? "" : ", ") + verb->get_name();
  }
  bad_input(at == 1 ? "verb" : "verb " + app.get_name(), argv[at], "unknown", "one of " + known);
}

// Tables that went to a full disk are lost without a word otherwise. A reader that has gone away (`| head`) wants none.
void require_printed() {
  const bool lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  struct stat target{};
  const bool pipe = ::fstat(STDOUT_FILENO, &target) == 0 && (S_ISFIFO(target.st_mode) || S_ISSOCK(target.st_mode));
  if (lost && !pipe) bad_input("standard output", "", "could not be written", "send it where there is room");
}

int run(int argc, char** argv) {
  CLI::App app("Conformance and benchmark suite for MiniMax Sparse Attention", "msabench");
  app.set_version_flag("--version", version_text(), "Print versions and exit");
  app.require_subcommand(1);
  invocation chosen;
  chosen.argv.assign(argv, argv + argc);
  add_list(app, chosen);
  add_describe(app, chosen);
  add_check(app, chosen);
  add_repro(app, chosen);
  add_qualify(app, chosen);
  add_selftest(app, chosen);
  add_merge(app, chosen);
  add_golden(app, chosen);
  add_probe_numerics(app, chosen);
  add_env(app, chosen);
  add_flops(app, chosen);
  add_perf(app, chosen);
  refuse_empty_values(app);
  refuse_unknown_verb(app, argc, argv, 1);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) {  // help and version
      app.exit(e);
      require_printed();
      return exit_code::ok;
    }
    return refuse_arguments(app, e);
  }
  const int code = chosen.run();
  require_printed();
  return code;
}

}  // namespace

}  // namespace msabench

int main(int argc, char** argv) {
  // A closed pipe (`| head`) ends writes with an error, not the process with a signal half-way through a report.
  std::signal(SIGPIPE, SIG_IGN);
  // So does a limit on the size of files (`ulimit -f`).
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return msabench::run(argc, argv);
  } catch (const msabench::usage_error& e) {
    msabench::complain(e.what());
    return msabench::exit_code::usage;
  } catch (const msabench::environment_error& e) {
    msabench::complain(e.what());
    return msabench::exit_code::environment_refused;
  } catch (const std::exception& e) {
    msabench::complain(
        fmt::format("suite: {}; please report it with the command line", msabench::one_line(e.what(), 300)));
    return msabench::exit_code::suite;
  }
}

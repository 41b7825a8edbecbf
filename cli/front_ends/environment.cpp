// SPDX-License-Identifier: Apache-2.0
#include "cli/front_ends/environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <string_view>

#include "conformance/lists.h"
#include "core/environment_error.h"
#include "core/error.h"
#include "core/shell.h"
#include "core/units.h"
#include "core/verdict.h"

namespace msabench {
namespace {

constexpr const char* impl_variable = "MSABENCH_IMPL";

}  // namespace

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
}

front_end_setup setup_from_environment() {
  const auto impl = variable(impl_variable);
  if (!impl)
    bad_input(impl_variable, "", "is not set", "the name or file of an implementation, e.g. MSABENCH_IMPL=naive");
  front_end_setup setup;
  setup.repro_suffix = " --impl " + shell_word(*impl);
  std::optional<device> asked;
  if (const auto device_text = variable("MSABENCH_DEVICE")) {
    asked = device_from_text("MSABENCH_DEVICE", *device_text);
    setup.repro_suffix += " --device " + *device_text;
  }
  if (const auto threads_text = variable("MSABENCH_THREADS")) {
    const auto threads = parse_uint64("MSABENCH_THREADS", *threads_text);
    if (threads < 1 || threads > most_threads)
      bad_input("MSABENCH_THREADS", *threads_text, "is out of range", fmt::format("1 to {}", most_threads));
    setup.how.threads = static_cast<int>(threads);
    setup.repro_suffix += " --threads " + *threads_text;
  }
  if (const auto timeout_text = variable("MSABENCH_TIMEOUT_S")) {
    setup.how.query_timeout_s = setup.timeout_s.emplace(parse_seconds("MSABENCH_TIMEOUT_S", *timeout_text));
    setup.repro_suffix += " --timeout-s " + *timeout_text;
  }
  setup.impl = from_variable(impl_variable, [&] { return resolve_implementation(*impl, asked); });
  return setup;
}

std::string level_from_environment() {
  const std::string level = variable("MSABENCH_LEVEL").value_or("smoke");
  const auto known = levels();
  if (std::ranges::find(known, level) == known.end())
    bad_input("MSABENCH_LEVEL", level, "unknown level", fmt::format("one of {}", fmt::join(known, ", ")));
  return level;
}

std::uint64_t seed_from_environment() { return parse_uint64("MSABENCH_SEED", variable("MSABENCH_SEED").value_or("0")); }

int guarded(const char* program, const std::function<int()>& main) {
  // As in `msabench`: a closed pipe or a limit on files ends a write, not the process in the middle of one.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  const auto complain = [&](std::string_view line) { fmt::print(stderr, "{}: error: {}\n", program, line); };
  try {
    return main();
  } catch (const usage_error& e) {
    complain(e.what());
    return exit_code::usage;
  } catch (const environment_error& e) {
    complain(e.what());
    return exit_code::environment_refused;
  } catch (const std::exception& e) {
    complain(fmt::format("suite: {}; please report it with the command line", one_line(e.what(), 300)));
    return exit_code::suite;
  }
}

}  // namespace msabench

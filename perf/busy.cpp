// SPDX-License-Identifier: Apache-2.0
#include "perf/busy.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "core/error.h"

namespace msabench {
namespace {

// Time is counted in hundredths of a second on each CPU: below this, one tick would be more than the limits.
constexpr double least_cpu_s = 0.3;

}  // namespace

std::string too_busy(const cpu_usage& seen, const busy_limits& limits) {
  if (seen.cpu_seconds < least_cpu_s) return {};
  if (seen.others > limits.others)
    return fmt::format("other processes used {:.1f} % of the CPUs, at most {:g} % is quiet", 100 * seen.others,
                       100 * limits.others);
  if (seen.steal > limits.steal)
    return fmt::format("the hypervisor gave {:.1f} % of the CPUs' time to others, at most {:g} % is quiet",
                       100 * seen.steal, 100 * limits.steal);
  return {};
}

bool tells_when_busy(std::string_view answer) {
  if (answer != "refuse" && answer != "tell") bad_input("--busy", answer, "is unknown", "refuse or tell");
  return answer == "tell";
}

machine_watch system_watch() {
  return {[] { return read_cpus(); },
          [](double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); },
          [] { return own_cpu_seconds(); }};
}

std::optional<cpu_usage> watch_machine(const machine_watch& through, double seconds) {
  const auto first = through.read();
  const double own = through.own_cpu_s();
  through.wait(seconds);
  const auto last = through.read();
  if (!first || !last) return std::nullopt;
  return usage_between(*first, *last, through.own_cpu_s() - own);
}

}  // namespace msabench

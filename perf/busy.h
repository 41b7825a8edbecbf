// SPDX-License-Identifier: Apache-2.0
// Whether a machine is quiet enough for a time to mean something.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "host/conditions.h"

namespace msabench {

struct busy_limits {
  double others = 0.05;  // share of all CPUs' time that other processes may use
  double steal = 0.02;   // share that the hypervisor may give away
};

// Why it is too busy, in one clause; empty: quiet. Where less than `least_cpu_s` was watched nothing is said.
std::string too_busy(const cpu_usage& seen, const busy_limits& limits);

// "refuse", or "tell", which is true: numbers of a busy machine, with a remark. usage_error of --busy: another word.
bool tells_when_busy(std::string_view answer);

// Watches for a while before anything runs. Nothing where the system does not tell. `read` and `wait` are the system's
// but in tests.
struct machine_watch {
  std::function<std::optional<cpu_reading>()> read;
  std::function<void(double seconds)> wait;
  std::function<double()> own_cpu_s;
};
machine_watch system_watch();
std::optional<cpu_usage> watch_machine(const machine_watch& through, double seconds);

}  // namespace msabench

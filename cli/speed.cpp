// SPDX-License-Identifier: Apache-2.0
#include "cli/speed.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>

#include "cli/suite_version.h"
#include "core/environment_error.h"
#include "host/conditions.h"
#include "host/implementation.h"
#include "reports/perf.h"

namespace msabench {

perf_setup setup_of_machine(const executor_options& how) {
  perf_setup setup;
  setup.threads = how.threads > 0 ? how.threads : available_cores();
  setup.last_level_cache_bytes = last_level_cache_bytes();
  setup.available_memory_bytes = available_memory_bytes();
  return setup;
}

perf_run begin_speed_run(const std::vector<std::string>& argv, const perf_setup& setup, const perf_session& session) {
  perf_run run;
  run.suite_version = suite_version;
  run.suite_commit = suite_commit;
  run.suite_dirty = suite_dirty;
  run.argv = argv;
  run.start_utc = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  run.suite = name(setup.what.suite);
  run.seed = setup.what.seed;
  run.budget_s = setup.budget_s;
  run.cache = setup.cold ? "cold" : "hot";
  run.threads = setup.threads;
  run.environment = environment();
  run.last_level_cache_bytes = setup.last_level_cache_bytes;
  run.busy_limit = setup.limits.others;
  run.steal_limit = setup.limits.steal;
  run.implementations = session.implementations();
  if (const auto& device = run.implementations.front().device; !device.empty()) run.environment["device"] = device;
  return run;
}

std::exception_ptr measure_and_print(const perf_setup& setup, const perf_session& session, const output& out,
                                     perf_run& run) {
  const perf_events events{[&](const perf_run& planned) { out.print(perf_plan_text(planned)); },
                           [&](const perf_point& point) { out.print(perf_point_text(run, point)); }};
  try {
    measure(setup, session.executors(), events, run);
  } catch (const environment_error&) {
    if (run.points.empty()) throw;
    run.partial = true;
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace msabench

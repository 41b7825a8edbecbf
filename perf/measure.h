// SPDX-License-Identifier: Apache-2.0
// One speed run: points one after the other, each timed in one process, verified, and put beside the machine's limits.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/perf_record.h"
#include "host/executor.h"
#include "host/timing.h"
#include "perf/busy.h"
#include "perf/suite.h"

namespace msabench {

// What whoever asked can give, for remedies.
struct perf_option_names {
  std::string budget = "--budget-s", tell_busy = "--busy tell";
};

struct perf_setup {
  suite_request what;
  double budget_s = 120;
  bool cold = true;
  int threads = 1;
  std::optional<double> timeout_s;  // of a point; empty: from its work
  busy_limits limits;
  bool tell_busy = false;  // numbers of a busy machine are told, with a remark
  perf_option_names options;
  machine_watch watch = system_watch();
  double watch_s = 0.5;
  // Of the machine. Without a last-level cache that is known, 64 MiB count.
  std::optional<std::uint64_t> last_level_cache_bytes;
  double available_memory_bytes = 0;  // 0: not known
};

// Who answers queries, one for each implementation, and who times them.
struct perf_executors {
  std::vector<executor*> queries;
  std::vector<std::string> labels;
  timing_executor* timing = nullptr;
  bool on_device = false;  // a GPU: its cache, memory and idleness count, not those of the machine around it
};

struct perf_events {
  std::function<void(const perf_run&)> planned;     // with the estimate, before anything is timed
  std::function<void(const perf_point&)> measured;  // after each point
};

// Adds points to `run`. environment_error, before anything is timed: the machine is busy, or has not the memory. After an
// interrupt the points so far stand, and run.partial is set.
void measure(const perf_setup& setup, const perf_executors& with, const perf_events& events, perf_run& run);

// Bytes that the probe of the read bandwidth walks through.
std::uint64_t probe_bytes(const perf_setup& setup);

}  // namespace msabench

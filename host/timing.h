// SPDX-License-Identifier: Apache-2.0
// Timed runs: sides take turns in one process, round after round, with the machine's limits measured in between. A side is
// one implementation on one problem; sides that are compared on the same problem share its inputs.
//
// Nothing here knows operators, work or what a time means. Memory, clock and probes belong to the worker, so that a
// device can have its own.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/back_to_back.h"
#include "core/observation.h"
#include "core/run_spec.h"
#include "host/conditions.h"
#include "host/executor.h"
#include "inputs/input_set.h"

namespace msabench {

struct timed_side {
  int implementation = 0;     // index into what the executor was made for
  int group = 0;              // sides with the same number have the same inputs, each its own outputs
  bool lead_in = false;       // an untimed launch right before each sample: awake threads, on another input set
  bool back_to_back = false;  // runs of launches in a row as well, on devices
  // Input sets that the group has at the least, whatever it uses in a round.
  std::int64_t least_sets = 1;
  input_set* set = nullptr;
};

// Ceilings between the samples, in the order in which they were taken.
struct probe_samples {
  std::vector<double> flops_per_s, bytes_per_s;
  std::vector<std::string> types;        // formats of operands that flops_per_s holds for; none: it was not measured
  std::vector<double> e4m3_flops_per_s;  // of operands in e4m3; none: it was not measured
  std::string source;                    // what was measured and how
  std::uint64_t read_bytes = 0;          // memory that the reading walks through
};

// The device that timed sides run on; empty name: the CPU.
struct timed_device {
  std::string name;
  double cache_bytes = 0, free_bytes = 0;
  std::string busy;    // why it is too busy to tell; empty: it was idle before the run
  std::string unseen;  // why nobody could look; empty: somebody has
};

struct side_observation {
  observation seen;                  // launches: those with different outputs, the first few; timing: one
  std::int64_t launches = 0;         // warm-up and lead-ins included
  std::int64_t outputs_seen = 0;     // input sets whose outputs were looked at after the last launch
  std::int64_t outputs_dropped = 0;  // that differed from all that were kept
  back_to_back in_a_row;
  std::string left_out;  // why it has no sample: the budget; empty: it has some, or it failed
};

struct timed_observation {
  std::vector<side_observation> sides;
  probe_samples probes;
  timed_device on;
  cpu_usage usage;  // of the whole loop, this process and the worker left out
  bool conditions_known = false;
  double seconds = 0;         // of the loop
  bool budget_ended = false;  // before every side had its samples
  bool interrupted = false;
  // The process ended before the loop was over; side that ran then, -1: none.
  bool ended = false;
  int ended_in = -1;
  std::string end;  // what happened
};

// How many input sets a group of `launches_per_round` launches rotates through where a set may be used again after
// `rounds` rounds: as many as it uses in so many. 1 for rounds 0 (hot).
std::int64_t sets_of_group(std::int64_t launches_per_round, std::int64_t rounds);

class timing_executor {
 public:
  virtual ~timing_executor() = default;
  // how.timing, how.poison_seed and how.timeout_s count. Outputs are poisoned before the first launch and looked at after
  // the last one. Never throws for what implementations do; environment_error if the machine has not the memory.
  virtual timed_observation run(std::span<const timed_side> sides, const run_spec& how) = 0;
};

// One worker that loads all implementations, of one device, started at the first run and again after each abnormal end.
// `probe_bytes`: memory that the probe of the read bandwidth walks through.
std::unique_ptr<timing_executor> make_timing_executor(std::vector<implementation_ref> implementations,
                                                      const executor_options& options, std::uint64_t probe_bytes);

}  // namespace msabench

// SPDX-License-Identifier: Apache-2.0
// Runs problems on one implementation and says what was seen. Judging never learns which kind of executor ran:
// in_process (for debuggers), worker (own process that loads the plugin).
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/observation.h"
#include "core/problem.h"
#include "core/record.h"
#include "core/run_spec.h"
#include "inputs/input_set.h"

namespace msabench {

// A plugin file and where it runs. Built-in names (`naive`) live in ../lib/msabench beside the running program.
struct implementation_ref {
  std::string label;  // what the user typed
  std::string path;   // absolute path of the shared object
  device where;
  std::string argument = {};  // what stands behind the colon of NAME:ARGUMENT; the plugin finds it in its environment
};

// Names of the built-in implementations whose files are there, with one line each.
struct builtin_implementation {
  std::string name, what;
  device where;
  bool present = false;
  std::string argument = {};  // what has to follow its name behind a colon; empty: nothing may
};
std::vector<builtin_implementation> builtin_implementations();

// A built-in name or a file, with `:ARGUMENT` behind it where it has one. Throws usage_error (field "--impl") for an unknown
// name, a missing file, or a file that is no shared object (told by its ELF header, without loading it).
implementation_ref resolve_implementation(const std::string& name_or_file, std::optional<device> asked);

inline constexpr int most_threads = 4096;

struct executor_options {
  int threads = 0;               // that the implementation may use; 0: all cores of this process
  double query_timeout_s = 60;   // of loading, and of each query
  std::string field = "--impl";  // what errors about the implementation are told of
};

class executor {
 public:
  virtual ~executor() = default;

  // Loads the plugin if that has not happened. Throws usage_error (of options.field) if it is no msabench plugin: symbol
  // missing, other major version, NULL from get. A crash or hang in get is an observation of the first query, not a
  // throw.
  virtual implementation_record info() = 0;

  // Asks whether and how the implementation handles `p`. result: completed (answered is set), unsupported,
  // error_status, crashed, timed_out, nonsense.
  virtual observation query(const problem& p) = 0;

  // Plans and runs. `set.agreed` is the problem; outputs of the set are poisoned before each launch and copied after
  // it. Never throws for anything that the implementation does; suite_error for faults of the suite itself.
  virtual observation execute(input_set& set, const run_spec& how) = 0;
};

// An own process for the implementation, started at the first use and again after each abnormal end. Use it from one
// thread, which must live as long as it does. Ctrl-C (host/interrupt.h) ends any wait: timed_out, message
// "interrupted".
std::unique_ptr<executor> make_worker_executor(const implementation_ref& impl, const executor_options& options);
// The same calls in this process, for debuggers and CPU plugins: a crash is this process's, and nothing limits time or
// memory.
std::unique_ptr<executor> make_in_process_executor(const implementation_ref& impl, const executor_options& options);

// What host and implementation agree on for a problem. The host asks with the canonical profile (and the id form that
// the problem needs), page layout 1, then 2, and where pages of a block are refused both ways, the same with pages of one
// token (slot-addressed caches); the answer's profile becomes problem.asked of plan.
struct agreement {
  observation answer;  // of the last query; result completed: `agreed` is valid
  problem agreed;
  std::string
      refused;  // why it is unsupported although the query was OK (no output is left to judge, a weaker id form)
};
agreement negotiate(executor& on, const problem& wanted);

// Brings lse and lse_idx of a launch into the canonical form: base 2 becomes natural, -infinity and what was not written
// stay.
void adapt_outputs(const profile& delivered, launch& l);

// Memory that this machine can still give, in bytes (MemAvailable); 0 if it does not say.
double available_memory_bytes();

// Machine, kernel, compiler, CPU, load: for reports. `msabench env` prints it.
nlohmann::json environment();

}  // namespace msabench

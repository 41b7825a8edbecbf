// SPDX-License-Identifier: Apache-2.0
// One plugin loaded into this process, and the calls into it. The worker and the in_process executor both go through
// here; the implementation is in host/worker/, the only folder that sees the plugin header.
//
// After every call the session looks for what may not leave one (rule R6: exception, floating-point mode, signal
// handler), for bytes written past an out struct and for answers that no plugin may give, and puts the process back as
// it was. It can't survive a signal, an exit or a hang: those are the worker's, seen by its parent.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/observation.h"
#include "core/operator_table.h"
#include "core/problem.h"
#include "core/run_spec.h"
#include "core/tensor_view.h"
#include "inputs/generated_stream.h"

namespace msabench {

class cuda_device;

struct plugin_identity {
  std::string name, version, description;
  std::uint32_t abi_major = 0, abi_minor = 0;
  std::string device = {};  // that it runs on, and its driver; empty: the CPU
};

// A tensor as it is handed to run; the memory is the caller's.
struct bound_tensor {
  slot where = slot::q;
  direction dir = direction::in;
  tensor_desc desc;
  std::byte* data = nullptr;
};

// What the session reports while a call is under way. `run` counts launches; the two of a concurrent pair count apart.
struct launch_report {
  std::int32_t index = 0;  // of the launch, hence of the poison that its outputs hold
  std::int32_t plan = 0;   // 1: the second plan
  std::int32_t status = 0;
  std::vector<violation> violations;
};

class session_events {
 public:
  virtual ~session_events() = default;
  // Before control enters an entry point: "get", "query", "plan", "workspace", "run", "destroy".
  virtual void entering(std::string_view entry) = 0;
  // After launches have returned (one, or a concurrent pair), whatever their status; the outputs are read here. When it
  // returns, outputs hold the poison of the next launches. False: stop.
  virtual bool launched(std::span<const launch_report> reports) = 0;
};

// Memory that tensors lie in, guard bands included, as the host made it. `contents`: bytes from its start that hold
// anything; nobody reads or writes the others. `generated`: within them, what the generator gives. `steady`: an input that
// holds the same in all launches.
struct memory_region {
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> contents;
  generated_stream generated = {};
  bool steady = false;
};

// The tensors of a case, and the regions in which they lie (for devices only). `second_outputs` are the outputs of the second plan, needed if run_spec::second_plan.
struct bound_case {
  problem agreed;
  std::vector<bound_tensor> tensors, second_outputs;
  std::vector<memory_region> regions;
};

// Address space that calls may take, of the process that asks for it. The in_process executor gives none.
class memory_limiter {
 public:
  virtual ~memory_limiter() = default;
  // Room for what the suite itself is about to map: the workspace.
  virtual void allow_more(std::uint64_t bytes) = 0;
  // Around a launch under rule R3: the process may not grow.
  virtual void freeze() = 0;
  virtual void thaw() = 0;
};

// Launches that were enqueued without waiting in between.
struct launches_in_a_row {
  double seconds = 0;    // of all timed ones together, by the device's clock
  double enqueue_s = 0;  // that the host took for each of the first ones, before it could have to wait for the device
};

// A plan with its workspace, for timing: between two launches there is nothing but the launch. Not for two threads.
class prepared_plan {
 public:
  // Destroys the plan.
  virtual ~prepared_plan() = default;
  // Tensors that launches can have; the number by which launch() knows them.
  virtual std::size_t bind(bound_case tensors) = 0;
  // Seconds of one launch, on a device those of its own clock. Nothing if it ended in anything but OK, which `seen` then tells.
  virtual std::optional<double> launch(std::size_t tensors, observation& seen) = 0;
  // Devices only: a launch for each of `tensors`, of which the first `lead` are not timed. `near_end` is called while about
  // the last tenth of them runs. Nothing if one ended in anything but OK, which `seen` then tells.
  virtual std::optional<launches_in_a_row> launch_in_a_row(std::span<const std::size_t> tensors, std::size_t lead,
                                                           const std::function<void()>& near_end,
                                                           observation& seen) = 0;
  // What the launches have left changed in the process, or in the bands of the workspace, goes into `seen`.
  virtual void inspect(observation& seen) = 0;
};

class plugin_session {
 public:
  // Loads and checks the plugin. usage_error (field "--impl") if it is none: no symbol, other major version, NULL from
  // get, a function table with holes. An exception out of get ends in a session that answers every query with it.
  struct file {
    std::string path,
        argument;  // the argument is in the environment variable MSABENCH_PLUGIN_ARGUMENT while it is loaded
  };
  static std::unique_ptr<plugin_session> load(const file& what, device where, int threads, session_events& events,
                                              memory_limiter* limits);
  virtual ~plugin_session() = default;

  virtual const plugin_identity& identity() const = 0;

  // Observations without launches. The first one carries what was seen while loading.
  virtual observation query(const problem& p, session_events& events) = 0;
  // Plans, runs `how.launches` times (and a concurrent pair of launches at the end if how.second_plan), destroys.
  virtual observation execute(const bound_case& c, const run_spec& how, session_events& events) = 0;
  // Plans and makes the workspace, once dirty. Null: `seen` says why. It must not outlive this session. `graph` (devices):
  // from the second launch on, each is the replay of a graph; where one can't be captured a remark says so.
  virtual std::unique_ptr<prepared_plan> prepare(const problem& agreed, bool graph, observation& seen,
                                                 session_events& events) = 0;
  // Null on a CPU.
  virtual std::shared_ptr<cuda_device> on_device() const = 0;
};

// What this version of the session does not do, in one clause; empty if it can run `how`.
std::string unsupported_run_spec(const run_spec& how);

}  // namespace msabench

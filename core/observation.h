// SPDX-License-Identifier: Apache-2.0
// What an executor saw when an implementation ran: outputs, damage and process events; no judgement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/numerics.h"
#include "core/operator.h"
#include "core/profile.h"
#include "core/samples.h"
#include "core/tensor_view.h"

namespace msabench {

// What the implementation answers to a query.
struct capability {
  numerics declared;
  profile delivers;
};

// How a call, or the whole execution, ended.
enum class outcome {
  completed,     // every call returned OK
  unsupported,   // query (or run, see `entry`) answered MSABENCH_UNSUPPORTED
  error_status,  // another status
  crashed,       // signal, exit, exception, abort
  timed_out,
  device_lost,
  nonsense,  // an answer that no implementation may give; `message` says which
};

// Damage that is seen beside the outputs' values.
struct violation {
  enum class kind {
    out_of_bounds,        // a guard band of `where`, or of the workspace, changed
    input_modified,       // a filled extent of input `where` changed
    wrote_on_error,       // outputs changed although the status was not OK (rule R8)
    floating_point_mode,  // left changed by a call (rule R6)
    signal_handler,       // left changed by a call (rule R6)
    memory_limit,         // needs memory in run (rule R3)
    struct_overrun,       // wrote past struct_size of an out struct
    beyond_t,             // rows at or past T changed (rule R4)
    current_device,       // left changed by a call (rule R6)
  };
  kind what;
  std::optional<slot> where;  // empty: workspace or the process
  std::string entry;          // "run", "plan", ...
  std::string detail;         // one clause for a person
};

// Output tensors after one launch, strided as they were handed out. Launches whose bytes equal those of an earlier one share
// its memory.
struct launch {
  std::map<slot, tensor_view> outputs;
  std::shared_ptr<const std::vector<std::byte>> memory;  // what the views point into
  std::string outputs_sha256;
  std::int32_t same_as = -1;  // earlier launch with equal bytes; -1: none
  std::int32_t plan = 0;      // 1: of the second plan
  std::int32_t index = 0;     // counts launches; its poison stood in the outputs before (core/poison.h)
};

struct observation {
  outcome result = outcome::completed;
  std::string entry;  // the entry point that `result` is about: "get", "query", "plan", "workspace", "run", "destroy"
  std::int32_t status = 0;  // msabench_status of that entry point
  std::string message;      // last_error, or what happened ("signal 11 (Segmentation fault)")
  std::optional<capability> answered;
  std::vector<launch> launches;
  std::vector<violation> violations;
  std::vector<std::string> remarks;  // worth telling, no fault: "floating-point mode changed at load, reset"
  std::string captured_output;       // last 4 KiB of stdout and stderr of the case
  std::uint64_t workspace_bytes = 0;
  std::vector<samples> timing;  // one per implementation that the worker holds
};

}  // namespace msabench

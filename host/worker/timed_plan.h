// SPDX-License-Identifier: Apache-2.0
// A plan with its workspace as a timed run launches it: one launch at a time, or on a device many in a row.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "host/plugin_session.h"
#include "host/worker/calls.h"
#include "host/worker/cuda_driver.h"
#include "host/worker/workspace.h"
#include "msabench/plugin.h"

namespace msabench {

struct timed_plan_parts {
  const msabench_plugin* table = nullptr;
  msabench_plan* plan = nullptr;           // destroyed at the end
  std::unique_ptr<scratch_memory> memory;  // null: the plan needs none
  device where;
  std::shared_ptr<cuda_device> on;  // null on a CPU
  bool graph = false;               // replay from the second launch on
  // Of the session: what a call that ended in anything but OK is, and whether the device is still the current one.
  std::function<void(observation& seen, const call_end& end)> tell_failure;
  std::function<void(std::vector<violation>& found)> check_current_device;
};

std::unique_ptr<prepared_plan> make_timed_plan(timed_plan_parts parts);

}  // namespace msabench

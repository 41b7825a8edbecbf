// SPDX-License-Identifier: Apache-2.0
// The loop of a timed run in the worker: sides in turn, round after round, the machine's limits and its load in between.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "host/plugin_session.h"
#include "host/timing_protocol.h"
#include "host/worker/probes.h"

namespace msabench {

struct timed_run_environment {
  std::function<plugin_session&(int implementation)> session;
  session_events* events = nullptr;
  int threads = 1;
  std::shared_ptr<cuda_device> device;  // null: the CPU
  // Kept from run to run: its memory takes a while to fill.
  std::unique_ptr<machine_probes>* probes = nullptr;
  // After the loop: the outputs of side and set lie in the host's regions. Returns when they have been read.
  std::function<void(std::size_t side, std::int64_t set)> collect;
};

// Sides that fail drop out; the others go on. environment_error if there is not enough memory.
timed_observation run_timed(protocol::timed_request& request, const timed_run_environment& in);

}  // namespace msabench

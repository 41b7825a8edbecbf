// SPDX-License-Identifier: Apache-2.0
// Runs of launches on a GPU that were enqueued without waiting in between: the speed that lasts, once the power limit bites.
// A figure of its own: samples of launches that were waited for one by one are in core/samples.h, and the two never mix.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace msabench {

struct back_to_back_run {
  double time_us = 0;                   // of all timed launches / their number
  double enqueue_us = 0;                // that the host takes to enqueue one
  std::int64_t launches = 0, lead = 0;  // timed; before them, in the same row
  // Near the end of the run, under its load; 0: nobody could tell.
  double sm_mhz = 0, nvml_mhz = 0, power_w = 0, temperature_c = 0, throttle = 0;
};

struct back_to_back {
  std::vector<back_to_back_run> runs;
  std::string reason;  // why there is none; empty on a CPU, where this means nothing

  // The median of the runs; nothing without any.
  std::optional<double> time_us() const;
  // Whether the host may have been slower than the device: then the figure is about enqueueing.
  bool by_enqueueing() const;
};

void to_json(nlohmann::json& out, const back_to_back& b);
void from_json(const nlohmann::json& in, back_to_back& b);

}  // namespace msabench

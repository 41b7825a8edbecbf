// SPDX-License-Identifier: Apache-2.0
// How an executor is to run one problem: the same structure for conformance (a few launches, each kept) and for timing
// (many launches, raw samples, outputs kept after the last).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace msabench {

enum class device_type : std::int32_t { cpu = 1, cuda = 2 };  // DLPack

struct device {
  device_type type = device_type::cpu;
  std::int32_t id = 0;
  bool operator==(const device&) const = default;
};

// "cpu", "cuda" or "cuda:N"; usage_error naming `field`.
device device_from_text(std::string_view field, std::string_view text);

struct timing_spec {
  bool enabled = false;
  std::int32_t min_samples = 10;
  std::int32_t min_long_samples = 3;  // instead, for items that take longer than a second
  double budget_s = 0;                // stop when it is spent; 0: min_samples only
  double min_seconds = 0;             // go on for so long even if the samples are enough
  double relative_half_width = 0.01;  // of the median's interval; stop once reached
  std::int32_t warmup = 3;
  std::int32_t cold_sets = 0;  // rounds of the run until an input set is used again; 0: hot, one set only
  bool graph = false;          // CUDA graph replay
  // Devices: after the samples, runs of launches without waiting in between, each for so many seconds of which the first
  // part is not timed, all of them together for at most so many; 0: none.
  double back_to_back_s = 0, back_to_back_budget_s = 0;
  bool probes = true;               // ceilings measured between the samples
  std::vector<std::int32_t> order;  // which implementation each sample runs, e.g. 0 1 0 1; empty: 0 only
};

struct run_spec {
  std::int32_t launches = 2;  // each with another poison, the rehearsal included
  // Launch 0 sees shorter lengths and is not kept: a plan may not remember them (rules R3, R4).
  bool rehearse = false;
  bool keep_every_launch = true;  // false: outputs of the last launch only
  bool second_plan = false;       // one more plan that runs at the same time on another stream (rule R5)
  // From the second launch on, the rehearsal not counted, under the address space of the first (rule R3).
  bool limit_memory = true;
  // On a device the first launch is captured, after an unseen one of the same contents, and all launches are replays of that
  // graph at its addresses. On a CPU there is nothing to capture.
  bool graph = false;
  std::int32_t streams = 1;
  double timeout_s = 60;  // of everything together
  std::uint64_t poison_seed = 0;
  timing_spec timing;
};

void to_json(nlohmann::json& out, const device& d);
void from_json(const nlohmann::json& in, device& d);
void to_json(nlohmann::json& out, const timing_spec& t);
void from_json(const nlohmann::json& in, timing_spec& t);
void to_json(nlohmann::json& out, const run_spec& r);
void from_json(const nlohmann::json& in, run_spec& r);

}  // namespace msabench

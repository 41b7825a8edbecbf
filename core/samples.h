// SPDX-License-Identifier: Apache-2.0
// Raw timing samples of one implementation. Conformance runs leave them empty.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace msabench {

struct samples {
  std::vector<double> time_us;
  std::vector<std::int32_t> order;  // which implementation each sample ran
  // Of the GPU around each sample; empty on a CPU.
  std::vector<double> sm_mhz;    // true clock of a multiprocessor when the launch began, counted by a kernel
  std::vector<double> nvml_mhz;  // the same as NVML has it
  std::vector<double> power_w, temperature_c;
  std::vector<double> throttle;  // NVML's bits of reasons why clocks are low
  // Of the CPUs around each sample; empty where nobody looked.
  std::vector<double> at_s;     // when it began, since the first of the run
  std::vector<double> others;   // share of all CPUs' time that other processes used
  std::vector<double> steal;    // share that the hypervisor gave to other machines
  std::vector<double> load;     // processes that ran or wanted to, this one's own threads included
  std::vector<double> cpu_mhz;  // where the system tells
  bool empty() const { return time_us.empty(); }
};

void to_json(nlohmann::json& out, const samples& s);
void from_json(const nlohmann::json& in, samples& s);

}  // namespace msabench

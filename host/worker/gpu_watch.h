// SPDX-License-Identifier: Apache-2.0
// What a GPU says of itself while something is timed on it, by NVML (libnvidia-ml.so.1, opened at run time). Its clock reads
// high under load of the tensor cores; the true one is measured by machine_probes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace msabench {

struct gpu_reading {
  double sm_mhz = 0, power_w = 0, temperature_c = 0;
  std::uint64_t throttle_reasons = 0;  // bits as NVML has them
  double utilization = 0;              // share of the last moments in which any kernel ran
};

class gpu_watch {
 public:
  // Of the device on that bus. Null: the machine has no NVML, or does not let us ask.
  static std::unique_ptr<gpu_watch> open(const std::string& bus);
  virtual ~gpu_watch() = default;
  virtual std::optional<gpu_reading> read() = 0;
};

}  // namespace msabench

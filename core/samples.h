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
  std::vector<double> sm_mhz;       // in-kernel SM clock, GPUs only
  bool empty() const { return time_us.empty(); }
};

void to_json(nlohmann::json& out, const samples& s);
void from_json(const nlohmann::json& in, samples& s);

}  // namespace msabench

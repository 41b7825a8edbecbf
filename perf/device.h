// SPDX-License-Identifier: Apache-2.0
// What a machine can do at most: arithmetic by operand format and memory bandwidth, by its datasheet and as measured, never mixed.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/model_work.h"

namespace msabench {

struct ceilings {
  std::map<std::string, double> flops;  // FLOP/s by the name of the operands' dtype
  double bytes_per_s = 0;
  std::string source;

  std::optional<double> flops_of(dtype operands) const;
};

struct device_spec {
  std::string name, what;
  std::optional<ceilings> datasheet, measured;  // at least one
};

// Devices whose files are in perf/devices/, by name: h200.
const std::vector<device_spec>& named_devices();

// A name of named_devices(), or else a JSON file: {"name", "what", "datasheet": {"flops": {"bf16": ...}, "bytes_per_s", "source"},
// "measured": the same}, or a report (schema msabench.perf/... or msabench.report/...) whose "ceilings" object is such a "measured". usage_error names field and,
// in a file, the JSON field; numbers must be above 0 and finite, sources given, unknown keys are refused (not in reports).
device_spec find_device(std::string_view field, std::string_view name_or_file);
device_spec parse_device(std::string_view field, const nlohmann::json& in);
nlohmann::json to_json(const device_spec& d);

// The shortest time in which the machine can do the calls, one after the other: of each call the larger of useful FLOPs / peak and
// least compulsory bytes / bandwidth. FLOPs of the index branch are counted at the peak of `index_type`, the others at that of `type`,
// and add up, since they use the same units. Nothing if there is no peak for one of the two.
std::optional<double> roofline_s(const ceilings& c, const std::vector<operator_call>& calls, dtype type,
                                 dtype index_type);

}  // namespace msabench

// SPDX-License-Identifier: Apache-2.0
// The result of one check of one case: a value, the limit that it was held to, and the terms that the limit is made of.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/operator.h"
#include "core/verdict.h"

namespace msabench {

// The element on which a check came out worst.
struct worst_element {
  std::optional<slot> where;
  std::vector<std::int64_t> index;  // into the slot's tensor
  std::vector<std::string> axes;    // names of the index's axes: "row", "head", "channel"
  double got = 0, want = 0;
};

struct check_result {
  std::string id;        // "K0" .. "K8"
  bool gate = true;      // false: reported only
  bool observed = true;  // false: could not be seen, e.g. K2 without lse; never reads as passed
  bool passed = false;
  fail_kind kind = fail_kind::none;  // set when not passed
  double value = 0;                  // what is compared with the limit, at the worst element
  double limit = 0;
  std::string unit;                                   // "abs", "ratio to the limit", "rows", ...
  std::vector<std::pair<std::string, double>> terms;  // the limit's terms at the worst element, largest first
  worst_element worst;
  std::string named;    // key or block that a code names: "block 17 dropped"; empty if none
  std::string cure;     // the declared number that would have made it pass; empty if none would
  std::string promise;  // field of the profile whose promise this holds it to: what fails is a broken promise
  std::string note;     // one clause: what was seen
};

void to_json(nlohmann::json& out, const check_result& c);

}  // namespace msabench

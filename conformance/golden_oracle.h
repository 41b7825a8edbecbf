// SPDX-License-Identifier: Apache-2.0
// What the float64 reference says to the inputs of a golden case: all results that its kind has.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/golden_file.h"
#include "core/tensor_view.h"

namespace msabench {

struct golden_value {
  std::string_view tensor;
  std::vector<double> numbers;         // of a float64 tensor
  std::vector<std::int32_t> integers;  // of an int32 tensor
};

// By name, packed, float64 or int32. Inputs are required. Results that are there as well replace the reference's own
// where a later stage reads them (block_scores and block_ids of kind `attention`), so that a wrong one shows in itself
// alone; no bits in them do harm.
using golden_inputs = std::map<std::string, tensor_view, std::less<>>;

// One value for every expected tensor of the kind, in the kind's order.
std::vector<golden_value> golden_results(const golden_case& of, const golden_inputs& tensors);

}  // namespace msabench

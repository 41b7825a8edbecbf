// SPDX-License-Identifier: Apache-2.0
// Results of the forward pass as inputs of gradients, where the oracle has no time to compute them: by the forward
// operator of an implementation that is timed, some of whose rows the oracle has looked at.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/case.h"
#include "host/executor.h"
#include "inputs/input_set.h"

namespace msabench {

// attend or dense on the inputs of a case of attend_backward or dense_backward.
case_spec forward_of(const case_spec& backward);

struct forward_outcome {
  bool made = false;
  std::string told;  // who made them, and how much of it was judged; otherwise why nobody could
};

// Fills in out and lse of `set`, inputs of `backward` made with forward_results::left_to_caller: by the first of
// `implementations` that has the operator and whose rows are right, as far as they are looked at.
forward_outcome make_forward(input_set& set, const case_spec& backward, std::span<executor* const> implementations,
                             std::span<const std::string> labels, double timeout_s);

}  // namespace msabench

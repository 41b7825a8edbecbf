// SPDX-License-Identifier: Apache-2.0
// Judging with one check left out, to show what that check alone sees. It says something about the judge and nothing about
// an implementation, so whatever comes of it never reads as passed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/check_result.h"
#include "judge/judge.h"

namespace msabench::judge {

// Whether a check is `left_out` or one of its parts: "K4" has the parts K4a and K4b. An empty `left_out` is no check.
bool belongs_to(std::string_view check_id, std::string_view left_out);

// `checks` without those that belong to `left_out`.
std::vector<check_result> leave_out(std::vector<check_result> checks, std::string_view left_out);

// How the decision reads then: a pass becomes `insensitive`, and its reason says what was left out; what fails all the same
// stays as it is. Unchanged where nothing was left out.
decision without(decision d, std::string_view left_out);

// The remark of every record that was judged so.
std::string left_out_remark(std::string_view left_out);

}  // namespace msabench::judge

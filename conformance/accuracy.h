// SPDX-License-Identifier: Apache-2.0
// K6n, reported: how large an implementation's errors are next to those of `naive` on the same inputs.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "core/run_spec.h"
#include "host/executor.h"
#include "judge/judge.h"

namespace msabench {

// The built-in `naive`, which errors are compared with; null where it is what runs (`beside`), or is not there.
std::unique_ptr<executor> make_naive_beside(const implementation_ref& beside, const executor_options& how);

// Ratio of the root mean squares of both implementations' errors, each in the unit of K6a, from `checks` of the case and
// one launch of `naive` on the same tensors. Nothing where K6a was not reported, where a launch costs more than a million
// triples, or where naive does not take the problem. The outputs of `set` are overwritten.
std::optional<check_result> compare_with_naive(executor& naive, const judge::subject& what,
                                               const judge::expectation& expected, std::span<const check_result> checks,
                                               input_set& set, const run_spec& how);

}  // namespace msabench

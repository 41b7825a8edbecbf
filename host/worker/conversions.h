// SPDX-License-Identifier: Apache-2.0
// Core's words to the C structs of msabench/plugin.h and back. Numbers are equal by static_assert, so enumerators are
// cast.
#pragma once

#include <string>

#include "core/numerics.h"
#include "core/problem.h"
#include "core/profile.h"
#include "core/run_spec.h"
#include "msabench/plugin.h"

namespace msabench {

inline msabench_dtype to_c(dtype t) { return {t.code, t.bits, t.lanes}; }
inline msabench_device to_c(device d) { return {static_cast<std::int32_t>(d.type), d.id}; }
msabench_profile to_c(const profile& p);
msabench_problem to_c(const problem& p);

// What a plugin answered. Empty, or which field holds a value that no plugin may answer: an unknown format or
// enumerator, a promise that is neither 0 nor 1, NaN, a negative error, a nonzero reserved field. Caps and chains are
// the judge's affair.
std::string read_answer(const msabench_capability& from, numerics& declared, profile& delivers);

}  // namespace msabench

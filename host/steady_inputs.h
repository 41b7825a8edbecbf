// SPDX-License-Identifier: Apache-2.0
// Inputs that hold the same in all launches of an execution: a device has them once.
#pragma once

#include "core/run_spec.h"
#include "inputs/input_set.h"

namespace msabench {

// Slots whose contents a rehearsal shortens.
inline constexpr slot length_slots[] = {slot::cu_seqlens_q, slot::kv_lens, slot::cu_seqlens_kv, slot::cu_segments};

// An input in whose region all launches of an execution see the same.
bool is_steady(const input_set& set, const buffer& b, const run_spec& how);

}  // namespace msabench

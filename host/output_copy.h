// SPDX-License-Identifier: Apache-2.0
// Outputs of a launch that lie in memory of this process: what was damaged around them, and a copy to judge.
#pragma once

#include <cstdint>
#include <span>

#include "core/observation.h"
#include "inputs/input_set.h"

namespace msabench {

// Adds `found` unless the same kind of damage to the same slot is there already: twenty launches make one violation.
void add_violation(observation& into, violation found);

struct launched_outputs {
  std::int32_t index = 0;  // of the launch, hence of the poison that stood there before
  std::uint64_t poison_seed = 0;
  std::int64_t rows = 0;        // query tokens of the launch
  bool returned_error = false;  // then nothing may have been written (rule R8)
};
// Writes outside the outputs of `set`, and into rows past the last one.
void add_output_damage(const input_set& set, const launched_outputs& of, observation& into);

// The outputs of `set` as they are now. Equal bytes in rows that count share the memory of the `earlier` launch that has
// them.
launch copy_outputs(const input_set& set, std::int32_t index, std::int32_t plan, std::span<const launch> earlier);

}  // namespace msabench

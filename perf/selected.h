// SPDX-License-Identifier: Apache-2.0
// What a timed call had selected, for the work that it has done.
#pragma once

#include <optional>

#include "core/case.h"
#include "core/selection_counts.h"
#include "core/tensor_view.h"

namespace msabench {

// What was selected, where ids in canonical form tell; nothing for a tensor that is laid out otherwise.
std::optional<selection_counts> counts_of(const tensor_view* ids, const case_spec& c, const problem& p);

}  // namespace msabench

// SPDX-License-Identifier: Apache-2.0
// One row of a call, as a call of its own: what an implementation that promises `batch_invariant` must compute with the
// same bits.
#pragma once

#include <cstdint>
#include <optional>

#include "core/case.h"
#include "inputs/input_set.h"

namespace msabench {

// The problem of that call, from the problem of the case: one sequence, which ends at the row, and one query token. So
// bounds that a plan may look at (batch, lengths) are those of the row, not of the batch that it came from. Of vit_attend
// it is the row's segment, which its tokens cannot do without, and `row` has to be the first of it.
problem lone_row_problem(const case_spec& c, const problem& whole, std::int64_t row);

// The tensors of that call. Caches and weights are those of `whole`, in the same memory; what counts tokens or sequences
// is copied. `alone` is what was agreed on for lone_row_problem, with the page layout of `whole`. Nothing where keys
// would have to be copied that are more than a test is worth (contiguous keys behind many others).
std::optional<input_set> make_lone_row(const case_spec& c, const input_set& whole, const problem& alone,
                                       std::int64_t row);

}  // namespace msabench

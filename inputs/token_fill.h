// SPDX-License-Identifier: Apache-2.0
// Fills the tensors that operators of both branches have: queries and block tables.
#pragma once

#include <cstddef>
#include <functional>

#include "inputs/operators.h"
#include "inputs/page_pool.h"

namespace msabench {

// Queries [T, heads, width] of slot `where`: normal values times `scale` (a power of two; 0: zeros), over which
// write(row, values) writes what it wants of the row's packed values, called from several threads at once; empty:
// nothing.
void fill_queries(const fill_job& job, slot where, double scale,
                  const std::function<void(std::int64_t row, std::byte* values)>& write);

// The block table in slot `where`.
void fill_table(const fill_job& job, slot where, const page_pool& pool);

}  // namespace msabench

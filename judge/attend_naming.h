// SPDX-License-Identifier: Apache-2.0
// What a coded case says about a wrong output row: which key or block was dropped, counted twice or attended though it
// was not selected. Values of the code families are 0 or 1 and weights equal, so a channel is the share of the keys
// that carry it.
#pragma once

#include <span>
#include <string>

#include "reference/attend.h"
#include "reference/rows.h"

namespace msabench::judge {

// `want`: the oracle's row and head; `got`, `limit`: d elements. Empty if no single key or block explains the channels.
std::string name_code_fault(const reference::attend_inputs& in, const reference::row_place& place,
                            const reference::attend_row& want, std::span<const double> got,
                            std::span<const double> limit);

}  // namespace msabench::judge

// SPDX-License-Identifier: Apache-2.0
// The work table of `msabench flops` for people and for spreadsheets.
#pragma once

#include <string>

#include "perf/work_table.h"

namespace msabench {

std::string flops_text(const work_table& table);
// One header line, one line per context; fields separated by commas, numbers with a point whatever the locale, empty where
// there is none.
std::string flops_csv(const work_table& table);

}  // namespace msabench

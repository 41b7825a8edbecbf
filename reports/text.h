// SPDX-License-Identifier: Apache-2.0
// A run in a terminal. Lines are at most 100 columns wide, except those that hold something to be copied: a case name,
// a command. Every text ends with a line break. `colour` adds ANSI escapes; whether a terminal wants them is the
// caller's to know.
#pragma once

#include <string>

#include "core/record.h"

namespace msabench {

// One line: verdict, name, time, and how near the nearest gating check came to its limit.
std::string text_case_line(const case_record& c, bool colour);

// Under the line of a case that did not simply pass: the reason; of each check that was violated the worst element,
// got, want, limit, largest term, the key or block that a code names, and the declaration that would have made it pass;
// what was not observed; what the implementation printed; the command that reproduces the case alone. Empty for a pass.
std::string text_case_detail(const case_record& c, bool colour);

// Table of all checks of a case, for one that is looked at alone.
std::string text_case_checks(const case_record& c, bool colour);

// Table of operators and verdicts, what was not observed, and how the run ended.
std::string text_summary(const run_record& run, bool colour);

}  // namespace msabench

// SPDX-License-Identifier: Apache-2.0
// The part that perf and qualify share: what a speed run needs to know of the machine, and measuring with progress.
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "cli/output.h"
#include "core/perf_record.h"
#include "perf/session.h"

namespace msabench {

// Threads, caches and memory of this machine; everything else is the caller's.
perf_setup setup_of_machine(const executor_options& how);

// Everything of the record but its points.
perf_run begin_speed_run(const std::vector<std::string>& argv, const perf_setup& setup, const perf_session& session);

// Measures the points of setup.what, each printed once it is there. A machine that refuses in the middle leaves what was
// measured, run.partial and its error in the result; before the first point it throws.
std::exception_ptr measure_and_print(const perf_setup& setup, const perf_session& session, const output& out,
                                     perf_run& run);

}  // namespace msabench

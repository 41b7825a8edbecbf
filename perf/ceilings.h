// SPDX-License-Identifier: Apache-2.0
// Limits of a machine from what probes have measured between the samples.
#pragma once

#include <vector>

#include "core/perf_record.h"
#include "host/timing.h"

namespace msabench {

double median_of(std::vector<double> values);

perf_ceilings ceilings_of(const probe_samples& probes);

// Of each limit the higher one of the two.
void keep_higher(perf_ceilings& c, const perf_ceilings& other);

}  // namespace msabench

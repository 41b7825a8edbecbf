// SPDX-License-Identifier: Apache-2.0
// Limits of a machine from what probes have measured between the samples.
#pragma once

#include <span>
#include <vector>

#include "core/perf_record.h"
#include "host/timing.h"

namespace msabench {

double median_of(std::vector<double> values);

perf_ceilings ceilings_of(const probe_samples& probes);

// Medians over all points of a run, without their samples; `assumed` of what no point has measured.
perf_ceilings ceilings_over(std::span<const perf_point> points, const perf_ceilings& assumed);

// Of each limit the higher one of the two.
void keep_higher(perf_ceilings& c, const perf_ceilings& other);

}  // namespace msabench

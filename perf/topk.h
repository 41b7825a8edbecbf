// SPDX-License-Identifier: Apache-2.0
// What suite topk says beside its points: scoring and selecting in two kernels against one. A pure function.
#pragma once

#include <vector>

#include "core/perf_record.h"

namespace msabench {

// One row for each point that has a top-k and each implementation that has a time there.
std::vector<perf_topk> topk_rows(const std::vector<perf_point>& points, int implementations);

}  // namespace msabench

// SPDX-License-Identifier: Apache-2.0
// Bidirectional attention inside segments in float64 (docs/contract.md section 8), with the gauges of attend: every
// token reads all keys of its own segment and no other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/problem.h"
#include "core/tensor_view.h"
#include "reference/attention.h"

namespace msabench::reference {

// q, k (rotated), v [N, heads, d]; cu_segments [S+1] int32 from 0, not decreasing, its last entry at most N. Of the
// problem hq = hkv = heads, d and softmax_scale (0 stands for 1/sqrt(d)) count.
struct vit_attend_inputs {
  problem p;
  tensor_view q, k, v, cu_segments;
};

// All heads of each token in `rows`, in the order rows x heads. Finite q, k, v only. suite_error for shapes that
// contradict each other and rows not below the last entry of cu_segments.
std::vector<attend_row> vit_attend(const vit_attend_inputs& in, std::span<const std::int64_t> rows,
                                   const score_error& err);

}  // namespace msabench::reference

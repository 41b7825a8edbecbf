// SPDX-License-Identifier: Apache-2.0
// Attention of a vision tower from q and k before rotation, in float64 (docs/contract.md section 8): rope3d, then
// vit_attend, without rounding in between. Gauges are those of attend, of the rotated q and k.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/problem.h"
#include "core/tensor_view.h"
#include "reference/attention.h"
#include "reference/rope3d.h"

namespace msabench::reference {

// q, k (not rotated), v [N, heads, d], grids [items, 3]; of the problem hq = hkv = heads, d, vit_window, rope_theta and
// softmax_scale count.
struct vit3d_inputs {
  problem p;
  tensor_view q, k, v, grids;
  std::int64_t merge = 2;
};

struct vit3d_result {
  vit_layout layout;             // of all items
  std::vector<attend_row> rows;  // of the rows asked for, rows x heads
};

// Rotated keys are held for one head of one segment at a time. Finite q, k, v only. suite_error as of rope3d and
// vit_attend.
vit3d_result vit3d(const vit3d_inputs& in, std::span<const std::int64_t> rows, const score_error& err);

}  // namespace msabench::reference

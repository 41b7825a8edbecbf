// SPDX-License-Identifier: Apache-2.0
// The prologue in float64: per-head RMS norm, then partial rotary embedding, of q, k, q_idx and k_idx
// (docs/contract.md sections 1 and 2), and the gauge of its bound (docs/verdicts.md, error model).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/operator.h"
#include "core/problem.h"
#include "core/tensor_view.h"
#include "reference/rows.h"

namespace msabench::reference {

// q [T,Hq,d], k [T,Hkv,d], q_idx [T,Hi,di], k_idx [T,di]: tokens of this call, k and k_idx too; q_norm, k_norm [d],
// q_idx_norm, k_idx_norm [di]; cos_sin [max_pos,rope_dims]: rope_dims/2 cosines, then the sines. The index branch is
// rotated by the same table. Strides are free but for the innermost.
struct qk_norm_rope_inputs {
  problem p;
  tensor_view q, k, q_idx, k_idx, q_norm, k_norm, q_idx_norm, k_idx_norm, cos_sin, cu_seqlens_q, kv_lens;
};

// One head of one row of one output; vectors have d or di elements.
struct qk_norm_rope_row {
  slot output = slot::q_rope;  // q_rope, k_rope, q_idx_rope, k_idx_rope
  std::int64_t row = 0, head = 0;
  // Of the row. Below 0 (padding of a captured graph) the table has no angle: the contract says nothing about the
  // values, nobody reads them, and y and a are empty.
  std::int64_t position = 0;
  std::vector<double> y;  // exact value
  std::vector<double> a;  // amplitude sqrt(y_i^2 + y_j^2) of a rotated pair (i, j); |y_i| where nothing is rotated
};

// All heads of the outputs q_rope, k_rope, q_idx_rope, k_idx_rope of each row in `rows`, in that order. suite_error for
// shapes that contradict the problem, rows not below T and positions past the table.
std::vector<qk_norm_rope_row> qk_norm_rope(const qk_norm_rope_inputs& in, std::span<const std::int64_t> rows);

// The formula on one head: x and w of d elements, cos_sin of rope_dims (even, at most d), y of d.
void norm_rope(std::span<const double> x, std::span<const double> w, double eps, std::span<const double> cos_sin,
               std::span<double> y);

}  // namespace msabench::reference

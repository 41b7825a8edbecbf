// SPDX-License-Identifier: Apache-2.0
// The whole M3 attention layer in float64, from hidden states to its output (docs/contract.md section 1): projections,
// per-head RMS norm, partial rotary embedding with float64 angles, index, selection, attention, output projection. Made
// of the operators of this folder, with nothing rounded in between.
#pragma once

#include <cstdint>
#include <vector>

#include "core/problem.h"
#include "core/tensor_view.h"

namespace msabench::reference {

// Weights as stored in checkpoints, [out, in]: y = x W^T, no bias. w of the norms: y = x rsqrt(mean x^2 + eps) (1 + w).
struct layer_weights {
  tensor_view q, k, v, out;            // [Hq d, hidden], [Hkv d, hidden] twice, [hidden, Hq d]
  tensor_view q_idx, k_idx;            // [Hi di, hidden], [di, hidden]
  tensor_view q_norm, k_norm;          // [d]
  tensor_view q_idx_norm, k_idx_norm;  // [di]
};

// Whole prompts: every sequence begins at position 0. Of the problem heads, d, di, block, topk, local_blocks,
// init_blocks, rope_dims, rope_theta, norm_eps, softmax_scale and index_scale count (scales 0 stand for 1/sqrt(d) and
// 1/sqrt(di)).
struct layer_inputs {
  problem p;
  tensor_view hidden;      // [T, hidden]
  tensor_view cu_seqlens;  // [B+1]; absent: one sequence of T tokens
  layer_weights weights;
};

struct layer_result {
  std::vector<std::int32_t> ids;  // [T, Hkv, topk]
  std::vector<double> output;     // [T, hidden]
};

// Everything is finite. suite_error for shapes that contradict each other.
layer_result layer(const layer_inputs& in);

// cos_sin [max_pos, rope_dims] of qk_norm_rope in float64: angles position * theta^(-2i / rope_dims).
std::vector<double> angle_table(std::int64_t max_pos, std::int64_t rope_dims, double theta);

}  // namespace msabench::reference

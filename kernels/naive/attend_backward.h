// SPDX-License-Identifier: Apache-2.0
// attend_backward and dense_backward: gradients of attention over the selected blocks or all visible keys
// (docs/contract.md, section 7), in fp32. Weights are exp(score - lse) of the lse handed in, and D = <dO, o> is taken of
// the o handed in. Two passes, each with one writer for every result: dq by (row, KV head), keys of a block one after
// the other, then the blocks; dk and dv by (block of a sequence, KV head), rows one after the other, heads innermost.
#pragma once

#include <cstdint>

#include "kernels/common/calls.h"
#include "kernels/naive/stages.h"

namespace msabench::naive {

std::int32_t delta_head(std::int32_t head, std::int32_t heads);
float score_gradient(float weight, float d_weight, float delta);
float dq_scale(float softmax_scale);
void add_gradient(float factor, const float* values, std::int32_t d, float* sum);
std::int64_t gradient_row(std::int64_t first, std::int64_t count, std::int64_t i);
void store_gradient(const float* values, std::int32_t d, msabench_dtype type, void* to);

/// The sizes that a thread's scratch follows from.
struct backward_sizes {
  std::int64_t group, d, block, capacity;
};

/// Scratch of one thread; a double, since sizes that no machine has must not wrap around.
double backward_scratch_bytes(const backward_sizes& sizes);

/// All rows and keys. `scratch` holds `threads` slices of `slice_bytes`.
void attend_backward(const stages& stage, const backward_call& call, int threads, void* scratch,
                     std::int64_t slice_bytes);

}  // namespace msabench::naive

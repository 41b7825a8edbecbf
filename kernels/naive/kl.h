// SPDX-License-Identifier: Apache-2.0
// kl: the loss that trains the index branch, and its gradients (docs/contract.md, section 7), in fp32. By (row, KV head):
// a log-sum-exp for each query head and for the student, then loss and dq_idx, keys of a block one after the other, then
// the blocks. By block of a sequence: dk_idx, KV heads and their rows one after the other. Each result has one writer;
// between the two passes a log-sum-exp for each row and head is kept, and the shares of the rows in the loss.
#pragma once

#include <cstdint>

#include "kernels/common/calls.h"
#include "kernels/naive/stages.h"

namespace msabench::naive {

std::int32_t kl_blocks(const stages& stage, const kl_call& call, std::int64_t row, std::int32_t kv_head,
                       std::int32_t* blocks);
void teacher_scores(float* scores, std::int32_t group);
float teacher_weight(const float* weights, std::int32_t group);
double loss_term(float teacher, float log_student);
float kl_difference(float student, float teacher);
double kl_factor(double coeff, const lengths& rows, std::int32_t kv_heads);
void zero_gradient(const float* values, std::int32_t count, float* line);

/// The sizes that a thread's scratch follows from.
struct kl_sizes {
  std::int64_t group, d, di, block, max_blocks;
};

/// Scratch of one thread, and what is kept of all rows; doubles, since sizes that no machine has must not wrap around.
double kl_scratch_bytes(const kl_sizes& sizes);
double kl_kept_bytes(std::int64_t rows, std::int32_t kv_heads, std::int64_t group);

/// All rows and keys. `scratch` holds `threads` slices of `slice_bytes`, and behind them what is kept.
void kl(const stages& stage, const kl_call& call, int threads, void* scratch, std::int64_t slice_bytes);

}  // namespace msabench::naive

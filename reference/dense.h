// SPDX-License-Identifier: Apache-2.0
// Softmax attention over all visible keys in float64 (docs/contract.md section 5), with the gauges of attend. At a
// million keys the memory of one group at a time, 3 to 4 doubles for each of its heads and keys, is all that it takes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/problem.h"
#include "core/tensor_view.h"
#include "reference/attention.h"

namespace msabench::reference {

// As attend_inputs, without ids; p.block and p.topk are not read.
struct dense_inputs {
  problem p;
  tensor_view q, k, v, cu_seqlens_q, kv_lens, cu_seqlens_kv, block_table;
  tensor_view q_scale{}, k_scale{}, v_scale{};
};

// All query heads of each row in `rows`, in the order rows x heads. Finite q, k, v only. suite_error for shapes that
// contradict the problem and rows not below T.
std::vector<attend_row> dense(const dense_inputs& in, std::span<const std::int64_t> rows, const score_error& err);

}  // namespace msabench::reference

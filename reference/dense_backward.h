// SPDX-License-Identifier: Apache-2.0
// Gradients of causal attention over all visible keys (docs/contract.md section 7), with the gauges of their limits
// (docs/operators/attend_backward.md): attend_backward without ids.
#pragma once

#include "core/problem.h"
#include "core/tensor_view.h"
#include "reference/attention_backward.h"

namespace msabench::reference {

// As attend_backward_inputs; p.block and p.topk do not matter.
struct dense_backward_inputs {
  problem p;
  tensor_view q, k, v, d_out, cu_seqlens_q, kv_lens, cu_seqlens_kv;
};

backward_result dense_backward(const dense_backward_inputs& in, const backward_error& err);

}  // namespace msabench::reference

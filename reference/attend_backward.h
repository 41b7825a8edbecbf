// SPDX-License-Identifier: Apache-2.0
// Gradients of sparse attention over given blocks (docs/contract.md section 7), with the gauges of their limits
// (docs/operators/attend_backward.md). Reads stored types through typed loads, a tile of at most 128 keys or rows at a time;
// bit-identical for any number of threads.
#pragma once

#include "core/problem.h"
#include "core/tensor_view.h"
#include "reference/attention_backward.h"

namespace msabench::reference {

// q, d_out [T][Hq][d], k, v [N][Hkv][d], ids [T][Hkv][k] in any form; contiguous, finite. The slots out and lse are not
// read: attention_backward.h says why. p.softmax_scale 0 stands for 1/sqrt(d).
struct attend_backward_inputs {
  problem p;
  tensor_view q, k, v, ids, d_out, cu_seqlens_q, kv_lens, cu_seqlens_kv;
};

// All rows and keys. suite_error for shapes and lengths that contradict the problem or each other.
backward_result attend_backward(const attend_backward_inputs& in, const backward_error& err);

}  // namespace msabench::reference

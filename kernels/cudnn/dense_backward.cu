// SPDX-License-Identifier: Apache-2.0
// Gradients of dense attention, in cuDNN's deterministic order.
#include "kernels/cudnn/form.cuh"
#include "kernels/cudnn/operators.h"

namespace msabench::cudnn {

void dense_backward(const backward_call& c, const run_context& context) {
  const form f(context.problem, context.scratch);
  const auto stream = static_cast<cudaStream_t>(context.stream);
  make_lengths(f, c.rows, c.keys, stream);
  read_stats(f, c.rows, {const_cast<float*>(c.lse), c.lse_row_stride, c.lse_head_stride}, stream);
  graph::pointers tensors{{q_id, const_cast<char*>(c.q.data)},
                          {k_id, const_cast<char*>(c.keys.data)},
                          {v_id, const_cast<char*>(c.values.data)},
                          {out_id, const_cast<char*>(c.out.data)},
                          {d_out_id, const_cast<char*>(c.d_out.data)},
                          {stats_id, f.stats},
                          {dq_id, c.dq.data},
                          {dk_id, c.dk.data},
                          {dv_id, c.dv.data}};
  f.append_lengths(tensors);
  graph_error() = static_cast<graph*>(context.state)->execute(tensors, f.graph_workspace, context.stream);
  clear_empty_rows(f, c.rows, {c.dq.data, c.dq.row_stride, c.dq.head_stride}, stream);
}

}  // namespace msabench::cudnn

// SPDX-License-Identifier: Apache-2.0
// Gradients of dense attention.
#include "kernels/cudnn/form.cuh"
#include "kernels/cudnn/operators.h"

namespace msabench::cudnn {
namespace {

void aligned(const form& f, const backward_call& c, const run_context& context) {
  const auto stream = static_cast<cudaStream_t>(context.stream);
  align_rows(f, c, stream);
  gather(f, c.rows, c.keys, f.k, stream);
  gather(f, c.rows, c.values, f.v, stream);
  const graph::pointers tensors{{q_id, f.q},         {k_id, f.k},   {v_id, f.v},   {out_id, f.out}, {d_out_id, f.d_out},
                                {stats_id, f.stats}, {dq_id, f.dq}, {dk_id, f.dk}, {dv_id, f.dv}};
  graph_error() = static_cast<graph*>(context.state)->execute(tensors, f.graph_workspace, context.stream);
  take_gradients(f, c, stream);
}

void ragged(const form& f, const backward_call& c, const run_context& context) {
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

}  // namespace

void dense_backward(const backward_call& c, const run_context& context) {
  // The batch of a problem is a bound: a run without a sequence has no lengths to read, and nothing to write.
  if (c.rows.batch == 0) return;
  const form f(context.problem, context.scratch);
  f.aligned ? aligned(f, c, context) : ragged(f, c, context);
}

}  // namespace msabench::cudnn

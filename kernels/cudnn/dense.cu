// SPDX-License-Identifier: Apache-2.0
// Dense attention: prefill, chunks of it and decode, contiguous and paged.
#include "kernels/cudnn/form.cuh"
#include "kernels/cudnn/operators.h"

namespace msabench::cudnn {

void dense(const attend_call& c, const run_context& context) {
  const form f(context.problem, context.scratch);
  const auto stream = static_cast<cudaStream_t>(context.stream);
  auto* const q = const_cast<char*>(c.q);
  make_lengths(f, c.rows, c.keys, stream);
  if (f.padded) pad_rows(f, c.rows, {q, c.q_row_stride, c.q_head_stride}, stream);
  if (f.gathered) {
    gather(f, c.rows, c.keys, f.k, stream);
    gather(f, c.rows, c.values, f.v, stream);
  }
  graph::pointers tensors{{q_id, f.padded ? f.q : q},
                          {k_id, f.gathered ? f.k : const_cast<char*>(c.keys.data)},
                          {v_id, f.gathered ? f.v : const_cast<char*>(c.values.data)},
                          {out_id, f.padded ? f.out : c.out},
                          {stats_id, f.stats}};
  f.append_lengths(tensors);
  graph_error() = static_cast<graph*>(context.state)->execute(tensors, f.graph_workspace, context.stream);
  finish_rows(f, c.rows, {c.out, c.out_row_stride, c.out_head_stride}, {c.lse, c.lse_row_stride, c.lse_head_stride},
              stream);
}

}  // namespace msabench::cudnn

// SPDX-License-Identifier: Apache-2.0
// The form in which cuDNN takes a batch: lengths and element offsets of each sequence of the plan, a block table without
// entries that are nobody's, rows padded to the longest sequence of the plan, statistics [batch][heads][longest]. Made by a
// kernel of the call's own tensors, so that a captured graph follows them; the last sequences of a plan that a call has
// not are empty.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "kernels/common/calls.h"
#include "kernels/cudnn/graph.h"

namespace msabench::cudnn {

using namespace msabench::kernels;

/// Pieces of the workspace, in the order in which they lie there; the graph's own lies behind them.
struct form {
  explicit form(const msabench_problem& problem, void* memory = nullptr);

  std::int64_t batch, longest, pages, page_size;  ///< bounds of the plan; pages: columns of `table`, 0 where contiguous
  std::int32_t heads, kv_heads, d;
  bool padded, gathered, aligned;

  std::int64_t *q_offsets, *kv_offsets;  ///< [batch + 1], ragged
  std::int32_t *q_lengths, *kv_lengths;  ///< [batch]
  std::int32_t* table;                   ///< [batch][pages]
  float* stats;                          ///< [batch][heads][longest]
  char *q, *out;                         ///< padded, aligned: [batch][longest][heads][d]
  char *d_out, *dq;                      ///< aligned: the same
  std::int64_t tokens;                   ///< of k and v
  char *k, *v;                           ///< gathered, aligned: [tokens][kv_heads][d], sequence after sequence
  char *dk, *dv;                         ///< aligned: the same
  char* graph_workspace;
  std::uint64_t bytes;  ///< of all of them

  /// Whether sequences of keys start where offsets say: packed ones that are not a single sequence.
  __host__ __device__ bool has_kv_offsets() const { return pages == 0 && !padded && !aligned; }

  /// What graphs of either direction take of it.
  void append_lengths(graph::pointers& to) const;
};

/// Copies keys or values into `to`, and zeros behind the last sequence.
void gather(const form& f, const lengths& rows, const cache& from, char* to, cudaStream_t stream);

/// Fills lengths, offsets and table; `keys` says where those of the call lie.
void make_lengths(const form& f, const lengths& rows, const cache& keys, cudaStream_t stream);

/// 16-bit rows of a caller, [T][heads][d].
struct caller_rows {
  char* data;
  std::int64_t row_stride, head_stride;
};
/// Statistics of a caller, [T][heads]; data nullptr = not wanted.
struct caller_stats {
  float* data;
  std::int64_t row_stride, head_stride;
};

/// Copies the caller's queries into padded rows.
void pad_rows(const form& f, const lengths& rows, const caller_rows& q, cudaStream_t stream);
/// Puts results in the caller's places, out of padded rows where there are any, and 0 and -infinity where a row sees no key,
/// which cuDNN leaves open.
void finish_rows(const form& f, const lengths& rows, const caller_rows& out, const caller_stats& lse,
                 cudaStream_t stream);
/// Statistics as the graph of the gradients reads them. A row that sees no key gets one that makes all of its weights 0.
void read_stats(const form& f, const lengths& rows, const caller_stats& lse, cudaStream_t stream);
/// Gradients of rows that see no key, which cuDNN leaves open.
void clear_empty_rows(const form& f, const lengths& rows, const caller_rows& dq, cudaStream_t stream);

/// Rows of one sequence beside the last key that each sees, statistics with them; zeros and +infinity, which makes all weights 0,
/// where there is none.
void align_rows(const form& f, const backward_call& c, cudaStream_t stream);
/// Gradients out of aligned rows and keys into the caller's places, and 0 where a row sees no key.
void take_gradients(const form& f, const backward_call& c, cudaStream_t stream);

}  // namespace msabench::cudnn

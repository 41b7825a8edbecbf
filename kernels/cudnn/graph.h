// SPDX-License-Identifier: Apache-2.0
// A graph of cuDNN for a problem: built once, executed by each run. cuDNN is opened at run time (kernels/common/libraries.h);
// without it nothing is built, and the reason is the refusal.
#pragma once

#include <msabench/plugin.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace msabench::cudnn {

/// Tensors of the graphs. Rows of `q`, `out` and their gradients lie as `query_rows` says; statistics (natural log-sum-exp)
/// are fp32 [batch][heads][max_q_len]; offsets are int64 elements [batch + 1], lengths int32 [batch].
enum tensor_id : std::int64_t {
  q_id = 1,
  k_id,
  v_id,
  out_id,
  stats_id,
  q_offsets_id,
  kv_offsets_id,
  q_lengths_id,
  kv_lengths_id,
  table_id,
  d_out_id,
  dq_id,
  dk_id,
  dv_id,
};

/// How rows of queries and outputs reach cuDNN. `padded`: in the workspace, max_q_len of each sequence, since cuDNN writes
/// those that a sequence has not too; its fast kernels take these. `ragged`: as the caller has them; for batches whose
/// lengths differ much, for contiguous caches of several sequences, and for gradients. `aligned`: for gradients of a single
/// sequence, in the workspace, max_kv_len rows and as many keys, each row beside the last key that it sees and zeros elsewhere: then the
/// mask is that of a square, for which cuDNN is twice as fast as for the same one aligned at the end (seen in 9.19), and
/// needs no lengths.
enum class query_rows { padded, ragged, aligned };
query_rows rows_of(const msabench_problem& problem);

/// The fields of dense attention for patches too, whose keys are as many as their queries; others as they are.
msabench_problem with_keys(const msabench_problem& problem);

/// Whether keys and values of a paged cache are gathered into the workspace first. cuDNN's kernels for more than one query
/// token multiply the slots past a sequence's end by 0, and a page may hold anything there, NaN too.
bool gathers(const msabench_problem& problem);

/// Columns of the block table that a sequence can use; 0 where cuDNN sees no pages.
std::int64_t pages_of_sequence(const msabench_problem& problem);

class graph {
 public:
  /// nullptr where cuDNN is absent or does not take the problem; `refusal` says why.
  static std::unique_ptr<graph> build(const msabench_problem& problem, std::string& refusal);
  virtual ~graph() = default;

  virtual std::int64_t workspace_bytes() const = 0;
  using pointers = std::vector<std::pair<tensor_id, void*>>;
  /// Enqueues; "" or what went wrong.
  virtual std::string execute(const pointers& tensors, void* workspace, void* stream) = 0;
};

/// Version of the library, such as 9.19.0; "absent" if there is none.
std::string library_version();

}  // namespace msabench::cudnn

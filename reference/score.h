// SPDX-License-Identifier: Apache-2.0
// Block scores of the index branch in float64 (docs/contract.md section 3), and beside each the interval in which an
// implementation's score may lie (docs/verdicts.md, error model). Reads stored types a tile of at most 128 keys at a
// time, each tile once for all index heads; bit-identical for any number of threads.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "core/problem.h"
#include "core/tensor_view.h"
#include "reference/rows.h"

namespace msabench::reference {

// q_idx [T,Hi,di]; k_idx [N,di] with cu_seqlens_kv, or [pages,page_size,di] with block_table_idx where p.paged().
// Scales, each 1 if absent: q_idx_scale [T,Hi]; k_idx_scale [1], [N] or [pages,page_size]. Strides are free but for the
// innermost of q_idx and k_idx. p.index_scale 0 stands for 1/sqrt(di).
struct score_inputs {
  problem p;
  tensor_view q_idx, k_idx, q_idx_scale, k_idx_scale, cu_seqlens_q, kv_lens, cu_seqlens_kv, block_table_idx;
};

// What may happen to a score on its way to the ranking, as an abstract model; who makes which error is not the
// reference's affair.
//   delta_j = per_magnitude * G_j + per_score * |s_j|,  G_j = |index_scale| sum_c |q_c k_jc|
struct interval_model {
  double per_magnitude = 0, per_score = 0;
  double unit = 1;                                           // emitted score = unit * scaled score
  double largest = std::numeric_limits<double>::infinity();  // emitted scores beyond it turn infinite
  bool propagate_nan = false;  // a NaN key makes its block NaN, which ranks as -inf; otherwise it is ignored
};

// Scores of one (row, index head), one element per visible block 0 .. own; scores of all other blocks are -inf. All in
// the unit of scaled scores. Empty row: no elements.
struct score_row {
  std::int64_t row = 0, head = 0;
  std::vector<double> value;  // max s_j over the block's visible keys; NaN keys ignored (model: or propagated)
  // lo = max (s_j - delta_j), hi = max (s_j + delta_j) over visible keys, -inf over none. s_j = +inf gives +inf; -inf
  // and NaN keys are left out; a NaN key sets lo = -inf, and hi too where it propagates. hi = +inf where it would be
  // emitted beyond `largest`, lo = -inf where it would be below -largest.
  std::vector<double> lo, hi;
  std::vector<std::int64_t> key;  // position of the first key that has the value; -1 if all keys are NaN
};

// All index heads of each row in `rows`, in the order rows x heads. suite_error for shapes that contradict the problem
// and rows not below T.
std::vector<score_row> score(const score_inputs& in, std::span<const std::int64_t> rows, const interval_model& model);

// One block that the row sees at least one key of, as the elements of its score_row.
struct block_score {
  double value = 0, lo = 0, hi = 0;
  std::int64_t key = -1;
};
block_score score_block(const score_inputs& in, std::int64_t row, std::int64_t head, std::int64_t block,
                        const interval_model& model);

}  // namespace msabench::reference

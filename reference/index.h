// SPDX-License-Identifier: Apache-2.0
// The index branch as a whole in float64: scores, the blocks selected by them, and the log-sum-exp over the selected
// tokens (docs/contract.md sections 3 and 4), with the gauges of its bound (docs/verdicts.md, error model).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor_view.h"
#include "reference/attention.h"
#include "reference/score.h"

namespace msabench::reference {

using index_inputs = score_inputs;

// lse_idx of one (row, index head) over the visible tokens of a set of blocks; s_j are scaled index scores, p_j their
// softmax. n = 0: lse -inf, the rest 0. Training, which asks for it, has finite inputs; otherwise NaN scores are left
// out, and where any score is not finite eta_bar is +inf: there is no bound.
struct index_lse_row {
  std::int64_t row = 0, head = 0;
  std::int64_t n = 0;     // selected visible keys
  double m = 0, lse = 0;  // largest score; natural log of the sum of exp
  double eta_bar = 0;     // sum p_j eta_j, as score_error has it
};

struct index_row {
  std::int64_t row = 0, head = 0;
  std::vector<std::int32_t> ids;  // topk: ascending, then -1; ties went to the lower id
  score_row scores;               // with the admissible intervals
  index_lse_row lse;              // over ids
};

// All index heads of each row in `rows`, in the order rows x heads. `model` says how far scores may be off for the
// intervals, `err` for lse. suite_error as for score(), and for an invalid topk.
std::vector<index_row> index(const index_inputs& in, std::span<const std::int64_t> rows, const interval_model& model,
                             const score_error& err);

// The same log-sum-exp over blocks that somebody else selected: ids [T,Hi,k] in form exact, short or lenient.
std::vector<index_lse_row> index_lse(const index_inputs& in, const tensor_view& ids, std::span<const std::int64_t> rows,
                                     const score_error& err);

}  // namespace msabench::reference

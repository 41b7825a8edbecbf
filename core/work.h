// SPDX-License-Identifier: Apache-2.0
// The work of one call of an operator: arithmetic and memory traffic that its definition asks for, whatever a kernel does. These are
// the numerators of every FLOP/s, byte/s and roofline figure of the suite. docs/work-model.md has the formulas beside each other.
//
// Useful FLOPs: multiplications and additions of the matrix products over visible (query, key) pairs, a multiply-add counting two:
//
//   score, index     2 di Hi E_causal                       dense             4 d Hq E_causal
//   attend           4 d Hq E_sel                           dense_backward   10 d Hq E_causal
//   msa              index + attend                         attend_backward  10 d Hq E_sel
//   kl               2 (d Hq + 3 di Hi) E, E = E_sel or, in the warm-up, E_causal (the loss alone: 2 (d Hq + di Hi) E)
//   select           0: it compares (`ranked_scores`)       combine           (2 P + 1) d Hq T
//   qk_norm_rope     of each live row 5 for a normalised element and 3 for a rotated one
//   rope3d           3 for a rotated element                vit_attend        4 d H E_segment;  vit3d: both
//
// Exponentials, maxima and divisions per pair are not counted. The prefix of a sequence is not work of this call.
//
// Compulsory bytes: every input byte that some row needs by the operator's formula once, every output byte once. Rows of queries count
// if live, rows of outputs always (empty ones are written too), keys if visible or, where ids choose them, selected and visible. Pages
// that sequences share count for each. `scores` counts its visible blocks only, since a kernel may leave the rest unwritten.
// Left out are lengths, block tables, grids and segments: integers of less than 0.2 % that schedule the work.
//
// Algorithmic bytes: what a straightforward kernel moves that works token by token and keeps nothing from one token to the next. Within a
// token keys are read once for each set of them: once for all query heads of a KV head; once for all index heads of `score`, which see
// the same keys; once for each index head where the heads select apart. Gradients of keys are zeroed, then read and written by each
// token. Stages meet in memory: `index` stores its scores, `msa` its ids, `vit3d` the rotated q and k. In decode with one query per
// sequence the two counts of a single-stage operator agree.
//
// Least: what no correct implementation can do without. Rows that select all they see, and forced blocks, need no scores; `index` and
// `msa` may skip those unless their scores or lse_idx are asked for. A measured efficiency above 1 against least is an error of measurement.
//
// All numbers are double: exact below 2^53, correct to a few roundings above (a whole prefill of 16M tokens has 2^63 FLOPs a layer).
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "core/operator.h"
#include "core/pairs.h"
#include "core/problem.h"
#include "core/selection_counts.h"

namespace msabench {

struct work {
  double useful_flops = 0;
  count_bounds compulsory_bytes;  // equal but where a selection is read whose ids are not known
  double algorithmic_bytes = 0;
  double least_flops = 0, least_bytes = 0;
  double ranked_scores = 0;  // block scores that a selection compares
};

struct work_options {
  // Of the ids in the call. Absent: E_sel by the selection rule (own blocks selected), and bounds for distinct keys.
  std::optional<selection_counts> selection;
  // Optional outputs that are asked for. Those that an operator does not have are no matter.
  std::vector<slot> outputs = {slot::lse, slot::ids};
};

// The text operators. `p` gives shapes and types; its lengths are upper bounds and not used, `batch` counts. suite_error for a vision
// operator, for types that are not stored, and for dims below 1 of what the operator has.
work work_of(const problem& p, batch_lengths batch, const work_options& options = {});

// rope3d, vit_attend, vit3d: heads p.hq, dim p.d, p.vit_window.
work work_of_vision(const problem& p, std::span<const grid> items, const work_options& options = {});

// Useful FLOPs of one visible (query token, key) pair, all heads together: the factor before E above, for operators that are sums
// over pairs of one kind (score, index, attend, dense, their backward forms, kl, vit_attend). suite_error for the others.
double flops_per_pair(const problem& p);
double kl_loss_flops_per_pair(const problem& p);

// Dims that rope3d rotates, of d: three axes of 2 floor(floor(d / 3) / 2).
inline std::int64_t rope3d_dims(std::int64_t d) { return 3 * 2 * (d / 3 / 2); }

}  // namespace msabench

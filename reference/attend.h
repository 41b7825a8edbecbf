// SPDX-License-Identifier: Apache-2.0
// Sparse attention over given blocks in float64 (docs/contract.md section 5), and the gauges that limits are made of
// (docs/verdicts.md, error model). Reads stored types through typed loads, a tile of at most 128 keys at a time;
// bit-identical for any number of threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/problem.h"
#include "core/tensor_view.h"
#include "reference/attention.h"

namespace msabench::reference {

// Everything but ids in the layout that the operator table gives it; strides are free but for the innermost.
// block_table where p.paged(), else cu_seqlens_kv. Of keys and values only those are read that a wanted row selects and
// sees. Stored values count times their scales: q_scale [T,Hq], k_scale and v_scale [1], [N,Hkv] or
// [pages,Hkv,page_size], each 1 if absent. p.softmax_scale 0 stands for 1/sqrt(d). Without ids (no shape) every visible key
// counts, as in dense(), and p.block only says which keys are named together. Without kv_lens cu_seqlens_q and
// cu_seqlens_kv are the segments of a vision tower (rows.h), as in vit_attend().
struct attend_inputs {
  problem p;
  tensor_view q, k, v, ids, cu_seqlens_q, kv_lens, cu_seqlens_kv, block_table;
  tensor_view q_scale{}, k_scale{}, v_scale{};
};

// All query heads of each row in `rows`, in the order rows x heads. Ids in form exact, short or lenient: the set of
// distinct b in 0..own counts, in any order. Finite q, k, v only. suite_error for shapes that contradict the problem
// and rows not below T.
std::vector<attend_row> attend(const attend_inputs& in, std::span<const std::int64_t> rows, const score_error& err);

// One (row, head) alone, bitwise as attend() has it.
attend_row attend_head(const attend_inputs& in, std::int64_t row, std::int64_t head, const score_error& err);

// One selected visible key of a (row, head), for perturbations and for naming keys.
struct attended_key {
  std::int64_t key = 0, block = 0;
  double score = 0, weight = 0;  // scaled score, softmax weight
};
// Keys in ascending order; scores and weights bitwise those of attend().
std::vector<attended_key> attended_keys(const attend_inputs& in, std::int64_t row, std::int64_t head);

// Scaled score and value row (d elements) of any key of the row's sequence, selected or not, as the row and head would
// see it; `value_head` is a KV head.
double score_of(const attend_inputs& in, std::int64_t row, std::int64_t head, std::int64_t key);
void value_of(const attend_inputs& in, std::int64_t row, std::int64_t value_head, std::int64_t key,
              std::span<double> out);

}  // namespace msabench::reference

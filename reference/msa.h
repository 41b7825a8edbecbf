// SPDX-License-Identifier: Apache-2.0
// MiniMax Sparse Attention in float64: index, then attend over the blocks that it selected (docs/contract.md section 5),
// with the gauges of both.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/problem.h"
#include "core/tensor_view.h"
#include "reference/attend.h"
#include "reference/index.h"

namespace msabench::reference {

// As index_inputs and attend_inputs; the index cache has a block table of its own.
struct msa_inputs {
  problem p;
  tensor_view q, k, v, q_idx, k_idx, q_idx_scale, k_idx_scale;
  tensor_view cu_seqlens_q, kv_lens, cu_seqlens_kv, block_table, block_table_idx;
  tensor_view q_scale{}, k_scale{}, v_scale{};
};

struct msa_rows {
  std::vector<index_row> index;    // ids, scores and lse of each (row, index head), rows x heads
  std::vector<attend_row> attend;  // over these ids: each (row, query head), rows x heads
};

// `model` and `index_err` say how far index scores may be off, `err` the main branch's. suite_error as for index() and
// attend(), and if there is not one index head for each KV head.
msa_rows msa(const msa_inputs& in, std::span<const std::int64_t> rows, const interval_model& model,
             const score_error& index_err, const score_error& err);

// The two halves on their own: attend on ids that somebody else returned is what msa is judged by.
index_inputs index_part(const msa_inputs& in);
attend_inputs attend_part(const msa_inputs& in, const tensor_view& ids);

}  // namespace msabench::reference

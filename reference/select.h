// SPDX-License-Identifier: Apache-2.0
// Block selection from given scores (docs/contract.md section 4), and the sets that its check needs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/problem.h"
#include "core/tensor_view.h"
#include "reference/rows.h"

namespace msabench::reference {

struct select_inputs {
  problem p;
  tensor_view scores;  // [Hkv, T, max_blocks] fp32 (float64 in golden files)
  tensor_view cu_seqlens_q, kv_lens;
};

// Is block b forced for a row with own block `own`: b < I or b > own - L.
bool forced(std::int64_t b, std::int64_t own, std::int64_t local_blocks, std::int64_t init_blocks);

// The k chosen blocks of one row: scores[0 .. visible), ascending ids, then -1 up to topk. NaN ranks as -inf, -0 = +0,
// ties go to the lower id.
std::vector<std::int32_t> select_row(std::span<const double> scores, std::int64_t visible, std::int64_t topk,
                                     std::int64_t local_blocks, std::int64_t init_blocks);

// ids of all index heads of each row in `rows`: rows x Hkv x topk.
std::vector<std::int32_t> select(const select_inputs& in, std::span<const std::int64_t> rows);

}  // namespace msabench::reference

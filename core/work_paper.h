// SPDX-License-Identifier: Apache-2.0
// The cost formulas of the MSA paper (arXiv 2606.13392), kept apart from the exact counts of core/work.h. They take every query token to
// read topk whole blocks and half of the square as N^2 / 2, and give the FLOPs of the whole causal prefill of N tokens in one layer
// (divided by N: of one token on average).
#pragma once

#include "core/case.h"

namespace msabench {

// F_GQA = 2 Hq d N^2.
inline double paper_gqa_flops(const shape_spec& s, double n) { return 2.0 * s.hq * s.d * n * n; }
// The index branch of F_MSA, Hkv di N^2.
inline double paper_index_flops(const shape_spec& s, double n) { return 1.0 * s.hkv * s.di * n * n; }
// F_MSA = Hkv di N^2 + 4 Hq d N k Bk.
inline double paper_msa_flops(const shape_spec& s, double n) {
  return paper_index_flops(s, n) + 4.0 * s.hq * s.d * n * s.topk * s.block;
}
// N where both cost the same; not positive where they never do, because the index branch alone costs as much as full attention.
inline double paper_equal_cost_length(const shape_spec& s) {
  return 4.0 * s.hq * s.d * s.topk * s.block / (2.0 * s.hq * s.d - 1.0 * s.hkv * s.di);
}

}  // namespace msabench

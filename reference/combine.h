// SPDX-License-Identifier: Apache-2.0
// Partial results over disjoint sets of keys, put together in float64 (docs/contract.md section 6), and the gauges of
// the bound (docs/verdicts.md, error model). Bit-identical for any number of threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/problem.h"
#include "core/tensor_view.h"

namespace msabench::reference {

// partial_out [P,T,Hq,d], partial_lse [P,T,Hq]; P may be 0. Strides are free but for the innermost of partial_out.
struct combine_inputs {
  problem p;
  tensor_view partial_out, partial_lse;
};

// One (row, query head); pi_p = w_p / sum w. Sums run over the partials with LSE_p > -inf; what O_p the others hold is
// not read. Vectors have d elements. partials = 0: out 0, lse -inf, gauges 0.
struct combine_row {
  std::int64_t row = 0, head = 0;
  std::int64_t partials = 0;      // with LSE_p > -inf
  double a = 0, lse = 0;          // a = max LSE_p; LSE = a + ln sum w_p
  double distance = 0;            // sum pi_p |LSE_p - a|
  std::vector<double> out;        // o_c = sum pi_p O_pc
  std::vector<double> magnitude;  // sum pi_p |O_pc|
  std::vector<double> exponents;  // sum pi_p |O_pc| (|LSE_p - a| + |a|)
  std::vector<double> sizes;      // sum |O_pc|, of parts with keys whatever they weigh
};

// All query heads of each row in `rows`, in the order rows x heads. suite_error for shapes that contradict the problem,
// rows not below T, and an LSE_p that is +inf or NaN, which the contract calls invalid.
std::vector<combine_row> combine(const combine_inputs& in, std::span<const std::int64_t> rows);

}  // namespace msabench::reference

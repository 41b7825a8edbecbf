// SPDX-License-Identifier: Apache-2.0
// Declared numerics turned into the symbols that limits are written in (docs/verdicts.md, "Declared numerics").
#pragma once

#include <cstdint>

#include "core/numerics.h"
#include "core/problem.h"

namespace msabench::judge {

inline constexpr double u32 = 0x1p-24;

// The most parts that a row is expected to be split into where the problem leaves it free.
inline constexpr std::int64_t most_free_splits = 64;

// Unit roundoffs u_*, with truncation counted double; 0 where nothing is rounded.
struct roundoffs {
  double u_o = 0;                     // output store
  double u_p = 0;                     // P as matrix operand
  double u_a = 0;                     // partial results below fp32
  double u_s = 0;                     // score store below fp32
  double u_in = 0;                    // q, k rounded before the product
  int n_in = 0;                       // how many of them
  double u_v = 0;                     // v rounded before the product
  double u_m_score = 0, u_m_out = 0;  // accumulators of the score and of the output product
  double c_e = 0, c_l = 0;            // relative error of exp, absolute error of log
  double omega_o = 0, omega_p = 0;    // what underflow of the output, of P, may lose
  bool lse_from_rounded_p = false;
  double u_ds = 0, omega_ds = 0;  // gradients: dS as matrix operand, and what its underflow may lose

  std::int64_t kappa_s = 0;  // longest chain of the score product
  // Chains over the n keys of a row: declared (0: the default), never more than n keys can make.
  std::int64_t kappa_o(std::int64_t n) const;
  std::int64_t kappa_l(std::int64_t n) const;

  std::int64_t declared_o = 0, declared_l = 0, splits = 0;
  std::int64_t declared_dq = 0,
               declared_dkv = 0;  // chains of gradients, over keys and over rows; 0: as many as there are
};

// For declarations that broken_declarations accepts; formats that are none count as fp32, so that no call throws.
roundoffs resolve(const problem& p, const numerics& n);

// The score product of the index branch, as that of attention over q_idx and k_idx: di takes the place of d, and fields
// that say nothing about it are fp32. For resolve() and the caps.
struct score_branch {
  problem p;
  numerics n;
};
score_branch index_branch_of(const problem& p, const numerics& n);

// The default chain of a denominator of n terms: sums of 128, then their sum.
std::int64_t usual_row_sum(std::int64_t n);

// k u / (1 - k u): relative error of k dependent roundings. +inf for k u >= 1/2, where the bound says nothing.
double gamma(std::int64_t k, double u);

}  // namespace msabench::judge

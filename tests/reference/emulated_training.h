// SPDX-License-Identifier: Apache-2.0
// Training kernels as honest implementations compute them, in fp32 with 16-bit matrix operands, and with a fault where
// asked: what the bounds of attend_backward and kl have to tell apart.
#pragma once

#include <cstdint>
#include <vector>

#include "training_batch.h"

namespace msabench::reference::testing {

enum class training_fault {
  none,
  d_of_neighbour_head,  // D of another head of the group
  no_d,                 // dS = p dP
  missing_key,          // the last key of every eighth row
  missing_head,         // the last head of each group adds nothing to dk and dv, or to the teacher
  mean_over_t_minus_1,  // kl divides by T - 1
  mean_over_full_rows,  // kl divides by the rows that have keys
  mean_of_logits,       // kl's teacher averages logits
};

struct emulation {
  dtype operand = bf16;  // P and dS as matrix operands
  dtype out = bf16;      // o as handed in
  dtype grad = fp32;
  bool truncates = false;        // operands toward zero
  bool flushes = false;          // exp gives no subnormal numbers
  bool prescaled_index = false;  // q_idx times index_scale, rounded to 16 bits, before the product
  training_fault fault = training_fault::none;
  std::uint64_t order = 1;  // of every sum
};

struct emulated_backward {
  std::vector<double> dq, dk, dv;
};
emulated_backward run_backward(const training_batch& b, bool all, const emulation& how);

struct emulated_kl {
  double loss = 0;
  std::vector<double> dq_idx, dk_idx;
};
emulated_kl run_kl(const training_batch& b, const emulation& how);

// How `got` lies within the limits of `want`.
struct limit_use {
  double worst = 0;       // largest |error| / H; +inf where an exact zero is missed
  double pooled = 0;      // rms of error / s
  double arithmetic = 0;  // median of (H32/16)^2 / s2: above 1/2 the pooled figure decides nothing
  double scale_off = 0;   // |alpha - 1|, alpha = <got, g> / <g, g>
  double scale_limit = 0;
};
limit_use use_of(const gradient& want, const std::vector<double>& got, const sum_error& err, double roundoff,
                 double exp_error, double largest_lse);

}  // namespace msabench::reference::testing

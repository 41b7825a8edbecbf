// SPDX-License-Identifier: Apache-2.0
// Gradients of softmax attention in float64 (docs/contract.md section 7), for attend_backward and dense_backward, and
// the gauges of their limits (docs/operators/attend_backward.md).
//
// The gradients are the exact ones: weights p and the mean o behind D = <dO, o> are recomputed in float64. An
// implementation is handed o rounded to its type and lse in fp32; what the roundings of these two do to its gradients
// is a part of the bound (u_out, and weight.per_size times |LSE|), so the reference reads neither.
#pragma once

#include <string_view>
#include <vector>

#include "core/problem.h"
#include "core/tensor_view.h"
#include "reference/gradient.h"

namespace msabench::reference {

// For row i, query head h of group r and key j: s scaled score, p weight,
//   dP = <dO, v_j>,  D = <dO, o>,  dS = p (dP - D),  W = sum_c |dO_c v_jc|,  Z = sum_c |dO_c o_c|
//   e  = p [(eta + u_ds + 2 u32) |dP - D| + (1 + eta)(1 + u_ds) (products W + (u_out + products) Z)]
//      + underflow (1 + u_ds) [|dP - D| + products W + (u_out + products) Z] + omega_ds
//   spread of dq: (u_ds^2/3 dS^2 + omega_ds^2/3) k^2 summed + (u_out^2/3) sum_c (dO_c o_c)^2 (sum_j p k)^2
//   spread of dk: [u_ds^2/3 dS^2 + u_out^2/3 p^2 sum_c (dO_c o_c)^2 + omega_ds^2/3] q^2 summed
//   dv: weight p, error p (eta + u_p) + underflow + omega_p, spread [u_p^2/3 p^2 + omega_p^2/3] dO^2 summed
// with u32 = sums.fine and `underflow` that of the weight.
struct backward_error {
  weight_error weight;
  double products = 0;               // of a sum of d products, relative to the sum of their magnitudes
  double u_p = 0, u_ds = 0;          // roundoffs of P and dS as matrix operands
  double u_out = 0;                  // roundoff of the o handed in
  double omega_p = 0, omega_ds = 0;  // what underflow of P, of dS, may lose
  sum_error sums;
};

struct backward_result {
  gradient dq;              // [T][Hq][d]
  gradient dk, dv;          // [N][Hkv][d]
  std::vector<double> lse;  // [T][Hq]; -inf for empty rows
};

struct backward_inputs {
  problem p;
  tensor_view q, k, v, ids, d_out, cu_seqlens_q, kv_lens, cu_seqlens_kv;  // no ids: every visible key
};
// `operation` names the operator in errors.
backward_result attention_backward(std::string_view operation, const backward_inputs& in, const backward_error& err);

// What the forward pass handed in: out [T][Hq][d], and lse [T][Hq] as natural logarithms.
struct forward_tensors {
  tensor_view out, lse;
};
// These lines alone, packed in this order, for problems whose softmax nobody wants to compute anew: weights are
// exp(s - lse) and D = <dO, out> of what was handed in. Errors of these two are then no errors of a gradient that is
// computed of them, and one that computes them anew is off by no more than the bound has for it. lse is of all rows.
backward_result attention_backward_lines(std::string_view operation, const backward_inputs& in,
                                         const forward_tensors& forward, const gradient_lines& lines,
                                         const backward_error& err);

}  // namespace msabench::reference

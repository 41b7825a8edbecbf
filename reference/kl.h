// SPDX-License-Identifier: Apache-2.0
// The loss that trains the index branch, and its gradients, in float64 (docs/contract.md section 7), with the gauges of
// their limits (docs/operators/kl.md). Reads stored types through typed loads, a tile of at most 128 keys or rows at a
// time; bit-identical for any number of threads.
//
// Nothing flows to q and k, nor to whatever made q_idx and k_idx: the optional outputs dq and dk are zeros of all bits,
// and there is nothing to compute.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/problem.h"
#include "core/tensor_view.h"
#include "reference/gradient.h"

namespace msabench::reference {

// q [T][Hq][d], k [N][Hkv][d], q_idx [T][Hi][di], k_idx [N][di], Hi = Hkv; contiguous, finite. ids [T][Hkv][k] in any
// form; not read where p.kl_warm_up is set: then every visible key counts. p.softmax_scale 0 stands for 1/sqrt(d),
// p.index_scale 0 for 1/sqrt(di).
struct kl_inputs {
  problem p;
  tensor_view q, k, q_idx, k_idx, ids, cu_seqlens_q, kv_lens, cu_seqlens_kv;
};

// The normaliser of a softmax that the implementation computes itself passes on the errors of all its terms:
//   theta of a weight grows by share * [ln(1 + sum p_j eta_j) + chain_roundoff(chain, roundoff) + log]
// chain: the longest run of dependent additions over n keys, `chain` if declared (0: sums of 128, then their sum).
struct normaliser_error {
  double share = 0;
  double roundoff = 0, log = 0;
  std::int64_t chain = 0;
};

// c = p.kl_coeff / (max(T, 1) Hkv); p^h the teacher's weights of head h, P their mean over the G heads of a group, P' the
// student's weights, t = ln P' = s' - LSE', ds = c (P' - P):
//   e  = c [P' eta' + underflow' + (1/G) sum_h (p^h eta^h + underflow) + mean P + (u_ds + u32) |P' - P|] + omega_ds
//   spread of both gradients: [u_ds^2/3 ds^2 + omega_ds^2/3] x^2 summed
struct kl_error {
  weight_error weight, index_weight;
  normaliser_error normaliser;
  double mean = 0;  // relative error of the mean over G heads
  double u_ds = 0, omega_ds = 0;
  sum_error sums;
};

struct kl_result {
  double loss = 0;
  // Parts of the bound of the loss:
  //   teacher = c sum [(1/G) sum_h p^h eta^h + mean P] (|ln P - t| + 1),  student = c sum P (theta' + 2 u32 |ln P|)
  //   magnitude = c sum P |ln P - t|, which the longest chain of additions multiplies
  double loss_teacher = 0, loss_student = 0, loss_magnitude = 0;
  std::int64_t loss_chain = 0;  // most keys of a row + T Hkv
  gradient dq_idx;              // [T][Hi][di]
  gradient dk_idx;              // [N][1][di]; terms are (row, index head)
  double largest_lse = 0;       // max |LSE| over both branches
};

// suite_error for shapes and lengths that contradict the problem or each other.
kl_result kl(const kl_inputs& in, const kl_error& err);

// These lines of dq_idx and dk_idx alone, packed in this order. The loss and its parts, which
// sum over all rows, are left out (0); largest_lse is that of the rows that were looked at.
kl_result kl_lines(const kl_inputs& in, const kl_error& err, const gradient_lines& lines);

// Triples of row, head and key that dk_idx takes of each of these rows of k alone: all keys of all rows that read it.
std::vector<std::int64_t> kl_key_triples(const kl_inputs& in, std::span<const std::int64_t> rows_of_k);

}  // namespace msabench::reference

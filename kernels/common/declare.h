// SPDX-License-Identifier: Apache-2.0
// What fp32 kernels on a CPU say of themselves: what is the same for all that follow the contract's own choices.
#pragma once

#include <msabench/plugin.h>

#include "kernels/common/types.h"

namespace msabench::kernels {

constexpr bool is_attention(msabench_op op) {
  return op == MSABENCH_OP_DENSE || op == MSABENCH_OP_ATTEND || op == MSABENCH_OP_MSA || op == MSABENCH_OP_VIT_ATTEND ||
         op == MSABENCH_OP_VIT3D;
}
constexpr bool is_attention_backward(msabench_op op) {
  return op == MSABENCH_OP_ATTEND_BACKWARD || op == MSABENCH_OP_DENSE_BACKWARD;
}
/// Operators with gradients.
constexpr bool trains(msabench_op op) { return is_attention_backward(op) || op == MSABENCH_OP_KL; }
/// Without ids, and so without blocks.
constexpr bool reads_all_keys(const msabench_problem& p) {
  return p.op == MSABENCH_OP_DENSE || p.op == MSABENCH_OP_DENSE_BACKWARD || p.op == MSABENCH_OP_VIT_ATTEND ||
         p.op == MSABENCH_OP_VIT3D || (p.op == MSABENCH_OP_KL && p.kl_warm_up != 0);
}
constexpr bool is_index_branch(msabench_op op) { return op == MSABENCH_OP_SCORE || op == MSABENCH_OP_INDEX; }

/// Every id form is handled as the lenient one. Ties go to the lower id, and a row's bits depend on nothing but its own
/// keys and the machine.
inline msabench_profile canonical_profile(const msabench_problem& problem) {
  msabench_profile delivered{};
  delivered.struct_size = sizeof delivered;
  // Answering with the form asked for leaves the ids as the case has them.
  delivered.in_id_form = problem.profile.in_id_form;
  delivered.ties_low_id =
      problem.op == MSABENCH_OP_SELECT || problem.op == MSABENCH_OP_INDEX || problem.op == MSABENCH_OP_MSA;
  delivered.repeatable = 1;
  // Gradients of keys are sums over the rows of the call, the loss is a mean over them, and patches are rows of an item.
  delivered.batch_invariant =
      !trains(problem.op) && problem.op != MSABENCH_OP_ROPE3D && problem.op != MSABENCH_OP_VIT3D;
  return delivered;
}

/// Stored operands as they are and fp32 from there to the output; the lengths of chains are the caller's to add.
inline msabench_numerics fp32_numerics(const msabench_problem& problem) {
  msabench_numerics declared{};
  declared.struct_size = sizeof declared;
  const bool attends = is_attention(problem.op);
  declared.operand = attends || trains(problem.op) ? problem.q
                     : is_index_branch(problem.op) ? problem.q_idx
                                                   : fp32_type;
  declared.v_operand = attends || trains(problem.op) ? problem.kv : fp32_type;
  declared.out_store = attends || problem.op == MSABENCH_OP_COMBINE                                 ? problem.out
                       : problem.op == MSABENCH_OP_QK_NORM_ROPE || problem.op == MSABENCH_OP_ROPE3D ? problem.q
                                                                                                    : fp32_type;
  declared.score_acc = declared.score_store = declared.p_operand = declared.pv_acc = fp32_type;
  declared.partial_store = declared.ds_operand = fp32_type;
  return declared;
}

}  // namespace msabench::kernels

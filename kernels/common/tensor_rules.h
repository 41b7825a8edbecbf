// SPDX-License-Identifier: Apache-2.0
// What the tensors of an operator have to be, and the refusal of others with a text (plugin rule R9).
#pragma once

#include <msabench/plugin.h>

#include <cstdint>
#include <initializer_list>

#include "kernels/common/calls.h"
#include "kernels/common/lengths.h"
#include "kernels/common/types.h"

namespace msabench::kernels {

/// `device`: DLPack type of the memory that tensors have to lie in: 1 a CPU, which is the default, 2 CUDA. `packed`: whether
/// their strides have to be those of packed tensors. Set once, before any check.
void set_tensor_rules(std::int32_t device, bool packed);

/// Whether lengths, tables and grids can be read when a run is checked. On a GPU only kernels can: what they hold is the
/// host's duty, and sizes come from the shapes.
bool contents_readable();

inline constexpr std::int64_t any = -1;  ///< a dimension that the problem does not fix

struct tensor_rule {
  msabench_slot slot;
  const char* name;
  msabench_dtype type;
  std::int32_t rank;
  std::int64_t shape[4];
  bool optional = false;
};

/// nullptr = absent
const msabench_tensor* tensor_at(const msabench_args& args, msabench_slot slot);

/// 0 of an absent tensor.
std::int64_t first_dimension(const msabench_args& args, msabench_slot slot);

/// Copies what both sides know of the arguments.
msabench_status read_args(const msabench_args* given, msabench_args& to);

/// Checks in order and stops at the first fault.
msabench_status check_tensors(const msabench_args& args, std::initializer_list<tensor_rule> rules);

/// Lengths of the batch, and that the token tensors hold all of its tokens (`token_rows` of them) where that can be read.
msabench_status check_lengths(const msabench_problem& problem, const msabench_args& args, const char* token_tensor,
                              std::int64_t token_rows, lengths& to);

/// That the plan has room for the sums of every row.
msabench_status check_planned_rows(const msabench_problem& problem, const lengths& rows);

/// Keys or values of patches, which lie as the queries do.
cache patches_view(const msabench_tensor& tensor, const std::int32_t* cu_segments);

/// Queries and outputs of attention into the call.
void read_main_branch(const msabench_problem& problem, const msabench_args& args, attend_call& call);

}  // namespace msabench::kernels

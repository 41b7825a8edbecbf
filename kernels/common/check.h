// SPDX-License-Identifier: Apache-2.0
// What kernels take, and the refusal of everything else with a text (plugin rule R9): problems at query and
// plan, tensors at run. A tensor check that succeeds has filled in the call; until then nothing has been written.
#pragma once

#include <msabench/plugin.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "kernels/common/calls.h"
#include "kernels/common/implementation.h"

namespace msabench::kernels {

/// Copies what both sides of the interface know of a struct; fields that the caller's version lacks are 0. False if the
/// caller's version has more and uses it: then the struct means something that this version does not know.
template <class T>
bool read_struct(const T* given, T& to) {
  to = T{};
  const std::size_t size = given->struct_size;
  std::memcpy(&to, given, std::min(size, sizeof(T)));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  return size <= sizeof(T) ||
         std::all_of(bytes + sizeof(T), bytes + size, [](unsigned char byte) { return byte == 0; });
}

/// Reads and checks a problem for these kernels. Used by query and plan alike, so that they agree.
msabench_status check_problem(const implementation& kernels, const msabench_problem* given, msabench_problem& to);

/// Keys of a block: the problem's, or dense_block where every key is read; the warm-up of kl takes the problem's if it has
/// any.
std::int32_t block_size(const msabench_problem& problem);

/// Most blocks that a row can have: topk, or all of the longest sequence.
std::int64_t block_capacity(const msabench_problem& problem);

/// ceil(max_kv_len / block_size)
std::int64_t max_blocks(const msabench_problem& problem);

msabench_status check_select(const msabench_problem& problem, const msabench_args* args, select_call& call);
/// score, index and the index branch of msa
msabench_status check_index(const msabench_problem& problem, const msabench_args* args, index_call& call);
msabench_status check_norm_rope(const msabench_problem& problem, const msabench_args* args, norm_rope_call& call);
msabench_status check_combine(const msabench_problem& problem, const msabench_args* args, combine_call& call);
/// attend, dense, which has no ids, and the main branch of msa, whose ids are not given.
msabench_status check_attend(const msabench_problem& problem, const msabench_args* args, attend_call& call);

/// attend_backward, and dense_backward, which has no ids.
msabench_status check_backward(const msabench_problem& problem, const msabench_args* args, backward_call& call);
/// The segments of vit_attend are the sequences of its call.
msabench_status check_vit_attend(const msabench_problem& problem, const msabench_args* args, attend_call& call);

msabench_status check_vit3d(const msabench_problem& problem, const msabench_args* args, vit3d_call& call);

msabench_status check_rope3d(const msabench_problem& problem, const msabench_args* args, rope3d_call& call);

/// kl, in the warm-up without ids.
msabench_status check_kl(const msabench_problem& problem, const msabench_args* args, kl_call& call);

msabench_status check_msa(const msabench_problem& problem, const msabench_args* args, msa_call& call);

}  // namespace msabench::kernels

// SPDX-License-Identifier: Apache-2.0
// The operators and the slots (tensors) they read and write: one vocabulary for the C interface, tensor names in files,
// the worker protocol, keyword arguments and the documentation. Numbers equal those of msabench/plugin.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace msabench {

enum class op : std::int32_t {
  qk_norm_rope = 1,
  score = 2,
  select = 3,
  attend = 4,
  dense = 5,
  msa = 6,
  combine = 7,
  attend_backward = 8,
  dense_backward = 9,
  kl = 10,
  vit3d = 11,
  index = 12,
  rope3d = 13,
  vit_attend = 14,
};

inline constexpr op all_ops[] = {
    op::qk_norm_rope, op::score,           op::select,         op::index, op::attend, op::dense,      op::msa,
    op::combine,      op::attend_backward, op::dense_backward, op::kl,    op::rope3d, op::vit_attend, op::vit3d};

enum class slot : std::int32_t {
  q,
  k,
  v,
  q_idx,
  k_idx,
  cu_seqlens_q,
  kv_lens,
  cu_seqlens_kv,
  block_table,
  ids,
  scores,
  out,
  lse,
  partial_out,
  partial_lse,
  d_out,
  dq,
  dk,
  dv,
  dq_idx,
  dk_idx,
  loss,
  q_norm,
  k_norm,
  q_idx_norm,
  k_idx_norm,
  q_rope,
  k_rope,
  q_idx_rope,
  k_idx_rope,
  lse_idx,
  k_scale,
  v_scale,
  k_idx_scale,
  q_idx_scale,
  cos_sin,
  block_table_idx,
  grids,
  positions,
  cu_segments,
  q_scale,
};

inline constexpr int slot_count = static_cast<int>(slot::q_scale) + 1;

std::string_view name(op o);    // "attend"
std::string_view name(slot s);  // "cu_seqlens_q"
std::optional<op> op_from_name(std::string_view text);
std::optional<slot> slot_from_name(std::string_view text);

}  // namespace msabench

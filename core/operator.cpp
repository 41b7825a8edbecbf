// SPDX-License-Identifier: Apache-2.0
#include "core/operator.h"

#include <array>

namespace msabench {

namespace {

// In the order of `enum class slot`.
constexpr std::array<std::string_view, slot_count> slot_names = {"q",
                                                                 "k",
                                                                 "v",
                                                                 "q_idx",
                                                                 "k_idx",
                                                                 "cu_seqlens_q",
                                                                 "kv_lens",
                                                                 "cu_seqlens_kv",
                                                                 "block_table",
                                                                 "ids",
                                                                 "scores",
                                                                 "out",
                                                                 "lse",
                                                                 "partial_out",
                                                                 "partial_lse",
                                                                 "d_out",
                                                                 "dq",
                                                                 "dk",
                                                                 "dv",
                                                                 "dq_idx",
                                                                 "dk_idx",
                                                                 "loss",
                                                                 "q_norm",
                                                                 "k_norm",
                                                                 "q_idx_norm",
                                                                 "k_idx_norm",
                                                                 "q_rope",
                                                                 "k_rope",
                                                                 "q_idx_rope",
                                                                 "k_idx_rope",
                                                                 "lse_idx",
                                                                 "k_scale",
                                                                 "v_scale",
                                                                 "k_idx_scale",
                                                                 "q_idx_scale",
                                                                 "cos_sin",
                                                                 "block_table_idx",
                                                                 "grids",
                                                                 "positions",
                                                                 "cu_segments",
                                                                 "q_scale"};

struct named_op {
  op value;
  std::string_view text;
};
constexpr named_op op_names[] = {
    {op::qk_norm_rope, "qk_norm_rope"},
    {op::score, "score"},
    {op::select, "select"},
    {op::attend, "attend"},
    {op::dense, "dense"},
    {op::msa, "msa"},
    {op::combine, "combine"},
    {op::attend_backward, "attend_backward"},
    {op::dense_backward, "dense_backward"},
    {op::kl, "kl"},
    {op::vit3d, "vit3d"},
    {op::index, "index"},
    {op::rope3d, "rope3d"},
    {op::vit_attend, "vit_attend"},
};

}  // namespace

std::string_view name(op o) {
  for (const auto& n : op_names)
    if (n.value == o) return n.text;
  return "unknown";
}

std::string_view name(slot s) {
  const auto i = static_cast<std::size_t>(s);
  return i < slot_names.size() ? slot_names[i] : "unknown";
}

std::optional<op> op_from_name(std::string_view text) {
  for (const auto& n : op_names)
    if (n.text == text) return n.value;
  return std::nullopt;
}

std::optional<slot> slot_from_name(std::string_view text) {
  for (std::size_t i = 0; i < slot_names.size(); ++i)
    if (slot_names[i] == text) return static_cast<slot>(i);
  return std::nullopt;
}

}  // namespace msabench

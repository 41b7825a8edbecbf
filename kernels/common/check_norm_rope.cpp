// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "kernels/common/check.h"
#include "kernels/common/tensor_rules.h"

namespace msabench::kernels {

msabench_status check_norm_rope(const msabench_problem& p, const msabench_args* given, norm_rope_call& call) {
  struct stream {
    msabench_slot x, weight, y;
    const char *x_name, *weight_name, *y_name;
    std::int32_t heads, dim;
    bool one_head;  // without an axis
  };
  const stream streams[] = {
      {MSABENCH_Q, MSABENCH_Q_NORM, MSABENCH_Q_ROPE, "q", "q_norm", "q_rope", p.hq, p.d, false},
      {MSABENCH_K, MSABENCH_K_NORM, MSABENCH_K_ROPE, "k", "k_norm", "k_rope", p.hkv, p.d, false},
      {MSABENCH_Q_IDX, MSABENCH_Q_IDX_NORM, MSABENCH_Q_IDX_ROPE, "q_idx", "q_idx_norm", "q_idx_rope", p.hi, p.di,
       false},
      {MSABENCH_K_IDX, MSABENCH_K_IDX_NORM, MSABENCH_K_IDX_ROPE, "k_idx", "k_idx_norm", "k_idx_rope", 1, p.di, true}};
  msabench_args args;
  auto status = read_args(given, args);
  if (status != MSABENCH_OK) return status;
  const std::int64_t rows = first_dimension(args, MSABENCH_Q);
  for (const stream& s : streams) {
    const auto heads_of = [&](msabench_slot slot, const char* name) {
      return s.one_head ? tensor_rule{slot, name, p.q, 2, {rows, s.dim}}
                        : tensor_rule{slot, name, p.q, 3, {rows, s.heads, s.dim}};
    };
    status = check_tensors(
        args, {heads_of(s.x, s.x_name), {s.weight, s.weight_name, p.q, 1, {s.dim}}, heads_of(s.y, s.y_name)});
    if (status != MSABENCH_OK) return status;
  }
  status = check_tensors(args, {{MSABENCH_COS_SIN, "cos_sin", fp32_type, 2, {any, p.rope_dims}}});
  if (status == MSABENCH_OK) status = check_lengths(p, args, "q", rows, call.rows);
  if (status != MSABENCH_OK) return status;
  for (std::size_t i = 0; i < 4; ++i) {
    const stream& s = streams[i];
    const msabench_tensor &x = *tensor_at(args, s.x), &y = *tensor_at(args, s.y);
    call.tensors[i] = {static_cast<const char*>(x.data),
                       x.strides[0],
                       s.one_head ? 0 : x.strides[1],
                       static_cast<const char*>(tensor_at(args, s.weight)->data),
                       static_cast<char*>(y.data),
                       y.strides[0],
                       s.one_head ? 0 : y.strides[1],
                       s.heads,
                       s.dim};
  }
  const msabench_tensor& table = *tensor_at(args, MSABENCH_COS_SIN);
  call.type = p.q;
  call.eps = static_cast<float>(p.norm_eps);
  call.rope_dims = p.rope_dims;
  call.cos_sin = static_cast<const float*>(table.data);
  call.cos_sin_stride = table.strides[0];
  return MSABENCH_OK;
}

}  // namespace msabench::kernels

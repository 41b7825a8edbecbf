// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdint>

#include "kernels/common/check.h"
#include "kernels/common/error.h"
#include "kernels/common/tensor_rules.h"

namespace msabench::kernels {
namespace {

/// Heads of tokens, packed or not.
struct token_heads {
  char* data;
  std::int64_t row_stride, head_stride;
};

token_heads heads_of(const msabench_args& args, msabench_slot slot) {
  const msabench_tensor& tensor = *tensor_at(args, slot);
  return {static_cast<char*>(tensor.data), tensor.strides[0], tensor.strides[1]};
}

cache contiguous(const msabench_args& args, msabench_slot slot) {
  const token_heads heads = heads_of(args, slot);
  cache view{};
  view.data = heads.data;
  view.type = tensor_at(args, slot)->dtype;
  view.extent = tensor_at(args, slot)->shape[0];
  view.token_stride = heads.row_stride;
  view.head_stride = heads.head_stride;
  view.cu_seqlens_kv = static_cast<const std::int32_t*>(tensor_at(args, MSABENCH_CU_SEQLENS_KV)->data);
  return view;
}

backward_call::gradient gradient_at(const msabench_args& args, msabench_slot slot) {
  const token_heads heads = heads_of(args, slot);
  return {heads.data, heads.row_stride, heads.head_stride};
}

backward_call::token_tensor tokens_at(const msabench_args& args, msabench_slot slot) {
  const token_heads heads = heads_of(args, slot);
  return {heads.data, tensor_at(args, slot)->dtype, heads.row_stride, heads.head_stride};
}

}  // namespace

msabench_status check_backward(const msabench_problem& p, const msabench_args* given, backward_call& call) {
  msabench_args args;
  auto status = read_args(given, args);
  if (status != MSABENCH_OK) return status;
  const std::int64_t rows = first_dimension(args, MSABENCH_Q), keys = first_dimension(args, MSABENCH_K);
  const bool has_ids = p.op == MSABENCH_OP_ATTEND_BACKWARD;
  status = check_tensors(args, {{MSABENCH_Q, "q", p.q, 3, {any, p.hq, p.d}},
                                {MSABENCH_OUT, "out", p.out, 3, {rows, p.hq, p.d}},
                                {MSABENCH_LSE, "lse", fp32_type, 2, {rows, p.hq}},
                                {MSABENCH_D_OUT, "d_out", p.out, 3, {rows, p.hq, p.d}},
                                {MSABENCH_DQ, "dq", p.grad, 3, {rows, p.hq, p.d}},
                                {MSABENCH_K, "k", p.kv, 3, {any, p.hkv, p.d}},
                                {MSABENCH_V, "v", p.kv, 3, {keys, p.hkv, p.d}},
                                {MSABENCH_DK, "dk", p.grad, 3, {keys, p.hkv, p.d}},
                                {MSABENCH_DV, "dv", p.grad, 3, {keys, p.hkv, p.d}}});
  if (status == MSABENCH_OK && has_ids)
    status = check_tensors(args, {{MSABENCH_IDS, "ids", int32_type, 3, {rows, p.hkv, p.topk}}});
  if (status == MSABENCH_OK) status = check_lengths(p, args, "q", rows, call.rows);
  if (status == MSABENCH_OK)
    status = check_tensors(args, {{MSABENCH_CU_SEQLENS_KV, "cu_seqlens_kv", int32_type, 1, {call.rows.batch + 1}}});
  if (status != MSABENCH_OK) return status;
  // Sums of every row are kept in the scratch.
  status = check_planned_rows(p, call.rows);
  if (status != MSABENCH_OK) return status;
  call.kv_heads = p.hkv;
  call.group = p.hq / p.hkv;
  call.d = p.d;
  call.block = block_size(p);
  call.topk = p.topk;
  call.capacity = static_cast<std::int32_t>(block_capacity(p));
  call.max_blocks = max_blocks(p);
  call.scale = static_cast<float>(p.softmax_scale != 0 ? p.softmax_scale : 1 / std::sqrt(static_cast<double>(p.d)));
  call.keys = contiguous(args, MSABENCH_K);
  call.values = contiguous(args, MSABENCH_V);
  call.q = tokens_at(args, MSABENCH_Q);
  call.out = tokens_at(args, MSABENCH_OUT);
  call.d_out = tokens_at(args, MSABENCH_D_OUT);
  const msabench_tensor& lse = *tensor_at(args, MSABENCH_LSE);
  call.lse = static_cast<const float*>(lse.data);
  call.lse_row_stride = lse.strides[0];
  call.lse_head_stride = lse.strides[1];
  if (has_ids) {
    const msabench_tensor& ids = *tensor_at(args, MSABENCH_IDS);
    call.ids = static_cast<const std::int32_t*>(ids.data);
    call.id_row_stride = ids.strides[0];
    call.id_head_stride = ids.strides[1];
  }
  call.gradient_type = p.grad;
  call.dq = gradient_at(args, MSABENCH_DQ);
  call.dk = gradient_at(args, MSABENCH_DK);
  call.dv = gradient_at(args, MSABENCH_DV);
  return MSABENCH_OK;
}

}  // namespace msabench::kernels

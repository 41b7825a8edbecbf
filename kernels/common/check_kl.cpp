// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdint>

#include "kernels/common/check.h"
#include "kernels/common/error.h"
#include "kernels/common/tensor_rules.h"

namespace msabench::kernels {
namespace {

double scale_of(double asked, std::int32_t dim) { return asked != 0 ? asked : 1 / std::sqrt(static_cast<double>(dim)); }

/// k_idx and its gradient have no axis of heads.
std::int64_t head_stride_of(const msabench_tensor& tensor) { return tensor.rank == 3 ? tensor.strides[1] : 0; }

cache keys_at(const msabench_args& args, msabench_slot slot) {
  const msabench_tensor& tensor = *tensor_at(args, slot);
  cache view{};
  view.data = static_cast<const char*>(tensor.data);
  view.type = tensor.dtype;
  view.extent = tensor.shape[0];
  view.token_stride = tensor.strides[0];
  view.head_stride = head_stride_of(tensor);
  view.cu_seqlens_kv = static_cast<const std::int32_t*>(tensor_at(args, MSABENCH_CU_SEQLENS_KV)->data);
  return view;
}

kl_call::token_tensor tokens_at(const msabench_args& args, msabench_slot slot) {
  const msabench_tensor& tensor = *tensor_at(args, slot);
  return {static_cast<const char*>(tensor.data), tensor.dtype, tensor.strides[0], tensor.strides[1]};
}

/// Without data where the tensor is absent.
kl_call::gradient gradient_at(const msabench_args& args, msabench_slot slot) {
  const msabench_tensor* tensor = tensor_at(args, slot);
  if (tensor == nullptr) return {};
  return {static_cast<char*>(tensor->data), tensor->strides[0], head_stride_of(*tensor)};
}

msabench_status check_kl_tensors(const msabench_problem& p, const msabench_args& args, lengths& to) {
  const std::int64_t rows = first_dimension(args, MSABENCH_Q), keys = first_dimension(args, MSABENCH_K);
  auto status = check_tensors(args, {{MSABENCH_Q, "q", p.q, 3, {any, p.hq, p.d}},
                                     {MSABENCH_Q_IDX, "q_idx", p.q_idx, 3, {rows, p.hi, p.di}},
                                     {MSABENCH_DQ_IDX, "dq_idx", p.grad, 3, {rows, p.hi, p.di}},
                                     {MSABENCH_DQ, "dq", p.grad, 3, {rows, p.hq, p.d}, true},
                                     {MSABENCH_K, "k", p.kv, 3, {any, p.hkv, p.d}},
                                     {MSABENCH_K_IDX, "k_idx", p.k_idx, 2, {keys, p.di}},
                                     {MSABENCH_DK_IDX, "dk_idx", p.grad, 2, {keys, p.di}},
                                     {MSABENCH_DK, "dk", p.grad, 3, {keys, p.hkv, p.d}, true},
                                     {MSABENCH_LOSS, "loss", fp64_type, 1, {1}}});
  if (status == MSABENCH_OK && p.kl_warm_up == 0)
    status = check_tensors(args, {{MSABENCH_IDS, "ids", int32_type, 3, {rows, p.hkv, p.topk}}});
  if (status == MSABENCH_OK) status = check_lengths(p, args, "q", rows, to);
  if (status == MSABENCH_OK)
    status = check_tensors(args, {{MSABENCH_CU_SEQLENS_KV, "cu_seqlens_kv", int32_type, 1, {to.batch + 1}}});
  if (status != MSABENCH_OK) return status;
  // Results of every row are kept in the scratch.
  status = check_planned_rows(p, to);
  if (status != MSABENCH_OK) return status;
  // And so may be sums of every key.
  const auto* ends = static_cast<const std::int32_t*>(tensor_at(args, MSABENCH_CU_SEQLENS_KV)->data);
  const std::int64_t all_keys = contents_readable() ? ends[to.batch] : keys;
  if (all_keys > p.total_kv) {
    return fail(MSABENCH_INVALID_PROBLEM, "%s: ends at %lld, above the plan's total_kv %lld; plan for more",
                contents_readable() ? "cu_seqlens_kv" : "k.shape[0]", static_cast<long long>(all_keys),
                static_cast<long long>(p.total_kv));
  }
  return MSABENCH_OK;
}

}  // namespace

msabench_status check_kl(const msabench_problem& p, const msabench_args* given, kl_call& call) {
  msabench_args args;
  auto status = read_args(given, args);
  if (status == MSABENCH_OK) status = check_kl_tensors(p, args, call.rows);
  if (status != MSABENCH_OK) return status;
  call.kv_heads = p.hkv;
  call.group = p.hq / p.hkv;
  call.d = p.d;
  call.di = p.di;
  call.block = block_size(p);
  call.topk = p.topk;
  call.max_blocks = max_blocks(p);
  call.scale = static_cast<float>(scale_of(p.softmax_scale, p.d));
  call.index_scale = static_cast<float>(scale_of(p.index_scale, p.di));
  call.coeff = p.kl_coeff;
  call.keys = keys_at(args, MSABENCH_K);
  call.index_keys = keys_at(args, MSABENCH_K_IDX);
  call.q = tokens_at(args, MSABENCH_Q);
  call.q_idx = tokens_at(args, MSABENCH_Q_IDX);
  if (p.kl_warm_up == 0) {
    const msabench_tensor& ids = *tensor_at(args, MSABENCH_IDS);
    call.ids = static_cast<const std::int32_t*>(ids.data);
    call.id_row_stride = ids.strides[0];
    call.id_head_stride = ids.strides[1];
  }
  call.loss = static_cast<double*>(tensor_at(args, MSABENCH_LOSS)->data);
  call.gradient_type = p.grad;
  call.dq_idx = gradient_at(args, MSABENCH_DQ_IDX);
  call.dk_idx = gradient_at(args, MSABENCH_DK_IDX);
  call.dq = gradient_at(args, MSABENCH_DQ);
  call.dk = gradient_at(args, MSABENCH_DK);
  return MSABENCH_OK;
}

}  // namespace msabench::kernels

// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/tensor_rules.h"

#include <cstdint>

#include "kernels/common/check.h"
#include "kernels/common/error.h"

namespace msabench::kernels {
namespace {

constexpr std::int32_t cpu = 1;
std::int32_t required_device = cpu;
bool packed_only = false;

msabench_status check_form(const tensor_rule& rule, const msabench_tensor& tensor) {
  if (tensor.rank != rule.rank) {
    return fail(MSABENCH_INVALID_PROBLEM, "%s.rank %d: must be %d; pass a tensor of that rank", rule.name, tensor.rank,
                rule.rank);
  }
  if (tensor.shape == nullptr || tensor.strides == nullptr) {
    return fail(MSABENCH_INVALID_PROBLEM, "%s.%s null: every tensor states it; pass an array", rule.name,
                tensor.shape == nullptr ? "shape" : "strides");
  }
  if (!same_type(tensor.dtype, rule.type)) {
    return fail(MSABENCH_INVALID_PROBLEM, "%s.dtype {%d,%d,%d}: must be {%d,%d,%d}; pass what the problem says",
                rule.name, tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes, rule.type.code, rule.type.bits,
                rule.type.lanes);
  }
  if (tensor.device.type != required_device) {
    return fail(MSABENCH_INVALID_PROBLEM, "%s.device %d: must be %d, %s; pass memory of it", rule.name,
                tensor.device.type, required_device, required_device == cpu ? "a CPU" : "CUDA");
  }
  return MSABENCH_OK;
}

msabench_status check_packed(const tensor_rule& rule, const msabench_tensor& tensor) {
  std::int64_t packed = 1;
  for (std::int32_t axis = rule.rank - 1; axis >= 0; packed *= tensor.shape[axis--]) {
    if (!packed_only || tensor.shape[axis] <= 1 || tensor.strides[axis] == packed) continue;
    return fail(MSABENCH_UNSUPPORTED, "%s.strides[%d] %lld: only packed tensors are taken; copy it", rule.name, axis,
                static_cast<long long>(tensor.strides[axis]));
  }
  return MSABENCH_OK;
}

/// Kernels on a GPU load rows that have whole vectors of 16 bytes as such.
msabench_status check_vectors(const tensor_rule& rule, const msabench_tensor& tensor) {
  constexpr std::int64_t vector_bytes = 16;
  const std::int64_t bytes = bytes_of(rule.type);
  if (required_device == cpu || tensor.shape[rule.rank - 1] * bytes % vector_bytes != 0) return MSABENCH_OK;
  for (std::int32_t axis = 0; axis < rule.rank - 1; ++axis) {
    if (tensor.shape[axis] <= 1 || tensor.strides[axis] * bytes % vector_bytes == 0) continue;
    return fail(MSABENCH_UNSUPPORTED, "%s.strides[%d] %lld: only multiples of 16 bytes are taken; copy the tensor",
                rule.name, axis, static_cast<long long>(tensor.strides[axis]));
  }
  if (reinterpret_cast<std::uintptr_t>(tensor.data) % vector_bytes == 0) return MSABENCH_OK;
  return fail(MSABENCH_INVALID_PROBLEM, "%s.data: not aligned to 16 bytes; align it", rule.name);
}

msabench_status check_tensor(const tensor_rule& rule, const msabench_tensor* tensor) {
  if (tensor == nullptr) {
    if (rule.optional) return MSABENCH_OK;
    return fail(MSABENCH_INVALID_PROBLEM, "%s absent: the operator needs it; pass the tensor", rule.name);
  }
  const auto status = check_form(rule, *tensor);
  if (status != MSABENCH_OK) return status;
  bool empty = false;
  for (std::int32_t axis = 0; axis < rule.rank; ++axis) {
    const std::int64_t size = tensor->shape[axis], wanted = rule.shape[axis];
    if (size < 0 || (wanted != any && size != wanted)) {
      return fail(MSABENCH_INVALID_PROBLEM, "%s.shape[%d] %lld: must be %s%lld; pass the shape of the problem",
                  rule.name, axis, static_cast<long long>(size), wanted == any ? "at least " : "",
                  static_cast<long long>(wanted == any ? 0 : wanted));
    }
    empty = empty || size == 0;
  }
  if (empty) return MSABENCH_OK;
  for (std::int32_t axis = 0; axis < rule.rank; ++axis) {
    const std::int64_t stride = tensor->strides[axis];
    const bool innermost = axis == rule.rank - 1;
    if (tensor->shape[axis] > 1 && (innermost ? stride != 1 : stride < 0)) {
      return fail(MSABENCH_UNSUPPORTED, "%s.strides[%d] %lld: only %s are taken; copy the tensor", rule.name, axis,
                  static_cast<long long>(stride), innermost ? "innermost strides of 1" : "strides from 0 up");
    }
  }
  for (const auto check : {check_packed, check_vectors}) {
    const auto status_of_form = check(rule, *tensor);
    if (status_of_form != MSABENCH_OK) return status_of_form;
  }
  if (tensor->data == nullptr) {
    return fail(MSABENCH_INVALID_PROBLEM, "%s.data null: the tensor is not empty; pass its memory", rule.name);
  }
  if (reinterpret_cast<std::uintptr_t>(tensor->data) % static_cast<std::uintptr_t>(bytes_of(rule.type)) != 0) {
    return fail(MSABENCH_INVALID_PROBLEM, "%s.data: not aligned to its elements; align it to 16 bytes", rule.name);
  }
  return MSABENCH_OK;
}

}  // namespace

void set_tensor_rules(std::int32_t device, bool packed) {
  required_device = device;
  packed_only = packed;
}

bool contents_readable() { return required_device == cpu; }

const msabench_tensor* tensor_at(const msabench_args& args, msabench_slot slot) {
  return args.slot != nullptr && slot < args.slot_count ? args.slot[slot] : nullptr;
}

msabench_status check_tensors(const msabench_args& args, std::initializer_list<tensor_rule> rules) {
  for (const auto& rule : rules) {
    const auto status = check_tensor(rule, tensor_at(args, rule.slot));
    if (status != MSABENCH_OK) return status;
  }
  return MSABENCH_OK;
}

msabench_status read_args(const msabench_args* given, msabench_args& to) {
  if (given == nullptr) return fail(MSABENCH_INVALID_PROBLEM, "args null: nothing to run on; pass the tensors");
  if (!read_struct(given, to)) {
    return fail(MSABENCH_UNSUPPORTED, "args.struct_size %u: fields of a later version are set; leave them 0",
                given->struct_size);
  }
  return MSABENCH_OK;
}

msabench_status check_lengths(const msabench_problem& problem, const msabench_args& args, const char* token_tensor,
                              std::int64_t token_rows, lengths& to) {
  auto status = check_tensors(args, {{MSABENCH_KV_LENS, "kv_lens", int32_type, 1, {any}}});
  if (status != MSABENCH_OK) return status;
  const msabench_tensor& kv_lens = *tensor_at(args, MSABENCH_KV_LENS);
  const std::int64_t batch = kv_lens.shape[0];
  if (batch > problem.batch) {
    return fail(MSABENCH_INVALID_PROBLEM,
                "kv_lens.shape[0] %lld: above the plan's batch %lld; plan for the larger batch",
                static_cast<long long>(batch), static_cast<long long>(problem.batch));
  }
  status = check_tensors(args, {{MSABENCH_CU_SEQLENS_Q, "cu_seqlens_q", int32_type, 1, {batch + 1}}});
  if (status != MSABENCH_OK) return status;
  to = {static_cast<const std::int32_t*>(tensor_at(args, MSABENCH_CU_SEQLENS_Q)->data),
        static_cast<const std::int32_t*>(kv_lens.data), batch, token_rows};
  if (contents_readable() && to.tokens() > token_rows) {
    return fail(MSABENCH_INVALID_PROBLEM, "%s.shape[0] %lld: cu_seqlens_q ends at %lld; pass as many rows",
                token_tensor, static_cast<long long>(token_rows), static_cast<long long>(to.tokens()));
  }
  return MSABENCH_OK;
}

msabench_status check_planned_rows(const msabench_problem& problem, const lengths& rows) {
  const std::int64_t count = contents_readable() ? rows.tokens() : rows.row_bound;
  if (count <= problem.total_q) return MSABENCH_OK;
  return fail(MSABENCH_INVALID_PROBLEM, "%s: ends at %lld, above the plan's total_q %lld; plan for more",
              contents_readable() ? "cu_seqlens_q" : "q.shape[0]", static_cast<long long>(count),
              static_cast<long long>(problem.total_q));
}

std::int64_t first_dimension(const msabench_args& args, msabench_slot slot) {
  const msabench_tensor* tensor = tensor_at(args, slot);
  return tensor != nullptr && tensor->rank > 0 && tensor->shape != nullptr ? tensor->shape[0] : 0;
}

}  // namespace msabench::kernels

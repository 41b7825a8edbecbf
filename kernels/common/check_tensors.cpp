// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdint>
#include <initializer_list>

#include "kernels/common/check.h"
#include "kernels/common/error.h"

namespace msabench::kernels {
namespace {

constexpr std::int64_t any = -1;  // a dimension that the problem does not fix

struct tensor_rule {
  msabench_slot slot;
  const char* name;
  msabench_dtype type;
  std::int32_t rank;
  std::int64_t shape[4];
  bool optional = false;
};

const msabench_tensor* tensor_at(const msabench_args& args, msabench_slot slot) {
  return args.slot != nullptr && slot < args.slot_count ? args.slot[slot] : nullptr;
}

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
  if (tensor.device.type != 1) {
    return fail(MSABENCH_INVALID_PROBLEM, "%s.device %d: must be 1, a CPU; pass memory of the host", rule.name,
                tensor.device.type);
  }
  return MSABENCH_OK;
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
  if (tensor->data == nullptr) {
    return fail(MSABENCH_INVALID_PROBLEM, "%s.data null: the tensor is not empty; pass its memory", rule.name);
  }
  if (reinterpret_cast<std::uintptr_t>(tensor->data) % static_cast<std::uintptr_t>(bytes_of(rule.type)) != 0) {
    return fail(MSABENCH_INVALID_PROBLEM, "%s.data: not aligned to its elements; align it to 16 bytes", rule.name);
  }
  return MSABENCH_OK;
}

/// Checks in order and stops at the first fault.
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

/// Lengths of the batch, and that the token tensors hold all of its tokens (`token_rows` of them).
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
        static_cast<const std::int32_t*>(kv_lens.data), batch};
  if (to.tokens() > token_rows) {
    return fail(MSABENCH_INVALID_PROBLEM, "%s.shape[0] %lld: cu_seqlens_q ends at %lld; pass as many rows",
                token_tensor, static_cast<long long>(token_rows), static_cast<long long>(to.tokens()));
  }
  return MSABENCH_OK;
}

std::int64_t first_dimension(const msabench_args& args, msabench_slot slot) {
  const msabench_tensor* tensor = tensor_at(args, slot);
  return tensor != nullptr && tensor->rank > 0 && tensor->shape != nullptr ? tensor->shape[0] : 0;
}

/// `table_slot`: the block table of the cache. The index cache has no head axis.
cache cache_view(const msabench_problem& problem, const msabench_args& args, msabench_slot slot,
                 msabench_slot table_slot) {
  const msabench_tensor& tensor = *tensor_at(args, slot);
  const bool has_heads = tensor.rank == (problem.page_layout == 0 ? 3 : 4);
  cache view{};
  view.data = static_cast<const char*>(tensor.data);
  view.type = tensor.dtype;
  view.page_size = problem.page_size;
  if (problem.page_layout == 0) {
    view.token_stride = tensor.strides[0];
    view.head_stride = has_heads ? tensor.strides[1] : 0;
    view.cu_seqlens_kv = static_cast<const std::int32_t*>(tensor_at(args, MSABENCH_CU_SEQLENS_KV)->data);
  } else {
    const msabench_tensor& table = *tensor_at(args, table_slot);
    view.page_stride = tensor.strides[0];
    view.head_stride = has_heads ? tensor.strides[1] : 0;
    view.token_stride = tensor.strides[has_heads ? 2 : 1];
    view.block_table = static_cast<const std::int32_t*>(table.data);
    view.table_stride = table.strides[0];
  }
  return view;
}

msabench_status check_cache(const msabench_problem& p, const msabench_args& args, std::int64_t batch) {
  if (p.page_layout == 0) {
    const std::int64_t tokens = first_dimension(args, MSABENCH_K);
    return check_tensors(args, {{MSABENCH_K, "k", p.kv, 3, {any, p.hkv, p.d}},
                                {MSABENCH_V, "v", p.kv, 3, {tokens, p.hkv, p.d}},
                                {MSABENCH_CU_SEQLENS_KV, "cu_seqlens_kv", int32_type, 1, {batch + 1}}});
  }
  const std::int64_t pages = first_dimension(args, MSABENCH_K);
  return check_tensors(args, {{MSABENCH_K, "k", p.kv, 4, {any, p.hkv, p.page_size, p.d}},
                              {MSABENCH_V, "v", p.kv, 4, {pages, p.hkv, p.page_size, p.d}},
                              {MSABENCH_BLOCK_TABLE, "block_table", int32_type, 2, {batch, any}}});
}

msabench_status check_index_cache(const msabench_problem& p, const msabench_args& args, std::int64_t batch) {
  if (p.page_layout == 0) {
    return check_tensors(args, {{MSABENCH_K_IDX, "k_idx", p.k_idx, 2, {any, p.di}},
                                {MSABENCH_CU_SEQLENS_KV, "cu_seqlens_kv", int32_type, 1, {batch + 1}}});
  }
  return check_tensors(args, {{MSABENCH_K_IDX, "k_idx", p.k_idx, 3, {any, p.page_size, p.di}},
                              {MSABENCH_BLOCK_TABLE_IDX, "block_table_idx", int32_type, 2, {batch, any}}});
}

/// Inputs of the index branch into the call.
void read_index_branch(const msabench_problem& p, const msabench_args& args, index_call& call) {
  const msabench_tensor& q = *tensor_at(args, MSABENCH_Q_IDX);
  call.rule = {p.block, p.topk, p.local_blocks, p.init_blocks};
  call.heads = p.hi;
  call.width = p.di;
  call.scale = static_cast<float>(p.index_scale != 0 ? p.index_scale : 1 / std::sqrt(static_cast<double>(p.di)));
  call.max_blocks = max_blocks(p);
  call.keys = cache_view(p, args, MSABENCH_K_IDX, MSABENCH_BLOCK_TABLE_IDX);
  call.q = static_cast<const char*>(q.data);
  call.q_type = p.q_idx;
  call.q_row_stride = q.strides[0];
  call.q_head_stride = q.strides[1];
}

}  // namespace

msabench_status check_select(const msabench_problem& p, const msabench_args* given, select_call& call) {
  msabench_args args;
  auto status = read_args(given, args);
  if (status != MSABENCH_OK) return status;
  const std::int64_t rows = first_dimension(args, MSABENCH_IDS);
  status = check_tensors(args, {{MSABENCH_IDS, "ids", int32_type, 3, {any, p.hkv, p.topk}},
                                {MSABENCH_SCORES, "scores", fp32_type, 3, {p.hkv, rows, max_blocks(p)}}});
  if (status == MSABENCH_OK) status = check_lengths(p, args, "ids", rows, call.rows);
  if (status != MSABENCH_OK) return status;
  const msabench_tensor& scores = *tensor_at(args, MSABENCH_SCORES);
  const msabench_tensor& ids = *tensor_at(args, MSABENCH_IDS);
  call.rule = {p.block, p.topk, p.local_blocks, p.init_blocks};
  call.heads = p.hkv;
  call.max_blocks = max_blocks(p);
  call.scores = static_cast<const float*>(scores.data);
  call.score_head_stride = scores.strides[0];
  call.score_row_stride = scores.strides[1];
  call.ids = static_cast<std::int32_t*>(ids.data);
  call.id_row_stride = ids.strides[0];
  call.id_head_stride = ids.strides[1];
  return MSABENCH_OK;
}

msabench_status check_index(const msabench_problem& p, const msabench_args* given, index_call& call) {
  msabench_args args;
  auto status = read_args(given, args);
  if (status != MSABENCH_OK) return status;
  const std::int64_t rows = first_dimension(args, MSABENCH_Q_IDX);
  status = check_tensors(args, {{MSABENCH_Q_IDX, "q_idx", p.q_idx, 3, {any, p.hi, p.di}}});
  if (status == MSABENCH_OK) {
    status = p.op == MSABENCH_OP_SCORE
                 ? check_tensors(args, {{MSABENCH_SCORES, "scores", fp32_type, 3, {p.hkv, rows, max_blocks(p)}}})
                 : check_tensors(args, {{MSABENCH_IDS, "ids", int32_type, 3, {rows, p.hkv, p.topk}},
                                        {MSABENCH_LSE_IDX, "lse_idx", fp32_type, 2, {rows, p.hkv}, true}});
  }
  if (status == MSABENCH_OK) status = check_lengths(p, args, "q_idx", rows, call.rows);
  if (status == MSABENCH_OK) status = check_index_cache(p, args, call.rows.batch);
  if (status != MSABENCH_OK) return status;
  read_index_branch(p, args, call);
  if (p.op == MSABENCH_OP_SCORE) {
    const msabench_tensor& scores = *tensor_at(args, MSABENCH_SCORES);
    call.scores = static_cast<float*>(scores.data);
    call.score_head_stride = scores.strides[0];
    call.score_row_stride = scores.strides[1];
    return MSABENCH_OK;
  }
  const msabench_tensor& ids = *tensor_at(args, MSABENCH_IDS);
  call.ids = static_cast<std::int32_t*>(ids.data);
  call.id_row_stride = ids.strides[0];
  call.id_head_stride = ids.strides[1];
  if (const msabench_tensor* lse = tensor_at(args, MSABENCH_LSE_IDX)) {
    call.lse = static_cast<float*>(lse->data);
    call.lse_row_stride = lse->strides[0];
    call.lse_head_stride = lse->strides[1];
  }
  return MSABENCH_OK;
}

msabench_status check_attend(const msabench_problem& p, const msabench_args* given, attend_call& call) {
  msabench_args args;
  auto status = read_args(given, args);
  if (status != MSABENCH_OK) return status;
  const std::int64_t rows = first_dimension(args, MSABENCH_Q);
  const bool has_ids = p.op != MSABENCH_OP_DENSE;
  status = check_tensors(args, {{MSABENCH_Q, "q", p.q, 3, {any, p.hq, p.d}},
                                {MSABENCH_OUT, "out", p.out, 3, {rows, p.hq, p.d}},
                                {MSABENCH_LSE, "lse", fp32_type, 2, {rows, p.hq}, true}});
  if (status == MSABENCH_OK && has_ids)
    status = check_tensors(args, {{MSABENCH_IDS, "ids", int32_type, 3, {rows, p.hkv, p.topk}}});
  if (status == MSABENCH_OK) status = check_lengths(p, args, "q", rows, call.rows);
  if (status == MSABENCH_OK) status = check_cache(p, args, call.rows.batch);
  if (status != MSABENCH_OK) return status;
  const msabench_tensor& q = *tensor_at(args, MSABENCH_Q);
  const msabench_tensor& out = *tensor_at(args, MSABENCH_OUT);
  call.kv_heads = p.hkv;
  call.group = p.hq / p.hkv;
  call.d = p.d;
  call.block = block_size(p);
  call.topk = p.topk;
  call.capacity = static_cast<std::int32_t>(block_capacity(p));
  call.scale = static_cast<float>(p.softmax_scale != 0 ? p.softmax_scale : 1 / std::sqrt(static_cast<double>(p.d)));
  call.keys = cache_view(p, args, MSABENCH_K, MSABENCH_BLOCK_TABLE);
  call.values = cache_view(p, args, MSABENCH_V, MSABENCH_BLOCK_TABLE);
  call.q = static_cast<const char*>(q.data);
  call.q_type = p.q;
  call.q_row_stride = q.strides[0];
  call.q_head_stride = q.strides[1];
  if (has_ids) {
    const msabench_tensor& ids = *tensor_at(args, MSABENCH_IDS);
    call.ids = static_cast<const std::int32_t*>(ids.data);
    call.id_row_stride = ids.strides[0];
    call.id_head_stride = ids.strides[1];
  }
  call.out = static_cast<char*>(out.data);
  call.out_type = p.out;
  call.out_row_stride = out.strides[0];
  call.out_head_stride = out.strides[1];
  if (const msabench_tensor* lse = tensor_at(args, MSABENCH_LSE)) {
    call.lse = static_cast<float*>(lse->data);
    call.lse_row_stride = lse->strides[0];
    call.lse_head_stride = lse->strides[1];
  }
  return MSABENCH_OK;
}

}  // namespace msabench::kernels

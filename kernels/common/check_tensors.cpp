// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdint>
#include <initializer_list>

#include "kernels/common/check.h"
#include "kernels/common/error.h"
#include "kernels/common/tensor_rules.h"

namespace msabench::kernels {
namespace {

/// `table_slot`: the block table of the cache. The index cache has no head axis.
cache cache_view(const msabench_problem& problem, const msabench_args& args, msabench_slot slot,
                 msabench_slot table_slot, scales factors) {
  const msabench_tensor& tensor = *tensor_at(args, slot);
  const bool has_heads = tensor.rank == (problem.page_layout == 0 ? 3 : 4);
  cache view{};
  view.data = static_cast<const char*>(tensor.data);
  view.type = tensor.dtype;
  view.extent = tensor.shape[0];
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
  view.scale = factors;
  return view;
}

struct scale_slot {
  msabench_slot slot;
  const char* name;
  std::int32_t form;   ///< kv_scale or idx_scale of the problem
  std::int32_t heads;  ///< 0: the tensor has no such axis
};

/// `units`: first dimension of the cache, keys or pages.
msabench_status check_scales(const msabench_problem& p, const msabench_args& args, const scale_slot& s,
                             std::int64_t units) {
  if (s.form == 0) return MSABENCH_OK;
  tensor_rule rule{s.slot, s.name, fp32_type, 1, {1}};
  if (s.form == 2) {
    rule.shape[0] = units;
    if (s.heads > 0) rule.shape[rule.rank++] = s.heads;
    if (p.page_layout != 0) rule.shape[rule.rank++] = p.page_size;
  }
  return check_tensors(args, {rule});
}

/// Of tensors that have been checked.
scales scale_view(const msabench_problem& p, const msabench_args& args, const scale_slot& s) {
  if (s.form == 0) return {};
  const msabench_tensor& tensor = *tensor_at(args, s.slot);
  scales view{static_cast<const float*>(tensor.data), 0, 0, 0, s.heads};
  if (s.form == 1) return view;
  if (s.heads > 0) view.head_stride = tensor.strides[1];
  if (p.page_layout != 0) {
    view.page_stride = tensor.strides[0];
    view.token_stride = tensor.strides[tensor.rank - 1];
  } else {
    view.token_stride = tensor.strides[0];
  }
  return view;
}

scale_slot k_scale_of(const msabench_problem& p) { return {MSABENCH_K_SCALE, "k_scale", p.kv_scale, p.hkv}; }
scale_slot v_scale_of(const msabench_problem& p) { return {MSABENCH_V_SCALE, "v_scale", p.kv_scale, p.hkv}; }
scale_slot k_idx_scale_of(const msabench_problem& p) { return {MSABENCH_K_IDX_SCALE, "k_idx_scale", p.idx_scale, 0}; }

msabench_status check_kv(const msabench_problem& p, const msabench_args& args, std::int64_t batch) {
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

msabench_status check_cache(const msabench_problem& p, const msabench_args& args, std::int64_t batch) {
  auto status = check_kv(p, args, batch);
  for (const auto& scale : {k_scale_of(p), v_scale_of(p)})
    if (status == MSABENCH_OK) status = check_scales(p, args, scale, first_dimension(args, MSABENCH_K));
  return status;
}

msabench_status check_index_keys(const msabench_problem& p, const msabench_args& args, std::int64_t batch) {
  if (p.page_layout == 0) {
    return check_tensors(args, {{MSABENCH_K_IDX, "k_idx", p.k_idx, 2, {any, p.di}},
                                {MSABENCH_CU_SEQLENS_KV, "cu_seqlens_kv", int32_type, 1, {batch + 1}}});
  }
  return check_tensors(args, {{MSABENCH_K_IDX, "k_idx", p.k_idx, 3, {any, p.page_size, p.di}},
                              {MSABENCH_BLOCK_TABLE_IDX, "block_table_idx", int32_type, 2, {batch, any}}});
}

msabench_status check_index_cache(const msabench_problem& p, const msabench_args& args, std::int64_t batch) {
  auto status = check_index_keys(p, args, batch);
  if (status == MSABENCH_OK) status = check_scales(p, args, k_idx_scale_of(p), first_dimension(args, MSABENCH_K_IDX));
  if (status != MSABENCH_OK || p.idx_scale == 0) return status;
  const std::int64_t rows = first_dimension(args, MSABENCH_Q_IDX);
  return check_tensors(args, {{MSABENCH_Q_IDX_SCALE, "q_idx_scale", fp32_type, 2, {rows, p.hi}}});
}

/// Inputs of the index branch into the call.
void read_index_branch(const msabench_problem& p, const msabench_args& args, index_call& call) {
  const msabench_tensor& q = *tensor_at(args, MSABENCH_Q_IDX);
  call.rule = {p.block, p.topk, p.local_blocks, p.init_blocks};
  call.heads = p.hi;
  call.width = p.di;
  call.scale = static_cast<float>(p.index_scale != 0 ? p.index_scale : 1 / std::sqrt(static_cast<double>(p.di)));
  call.max_blocks = max_blocks(p);
  call.keys = cache_view(p, args, MSABENCH_K_IDX, MSABENCH_BLOCK_TABLE_IDX, scale_view(p, args, k_idx_scale_of(p)));
  call.q = static_cast<const char*>(q.data);
  call.q_type = p.q_idx;
  call.q_row_stride = q.strides[0];
  call.q_head_stride = q.strides[1];
  if (p.idx_scale == 0) return;
  const msabench_tensor& q_scale = *tensor_at(args, MSABENCH_Q_IDX_SCALE);
  call.q_scale = static_cast<const float*>(q_scale.data);
  call.q_scale_row_stride = q_scale.strides[0];
  call.q_scale_head_stride = q_scale.strides[1];
}

/// Segments, and that the tensors hold all of their tokens (`rows` of them).
msabench_status check_segments(const msabench_problem& p, const msabench_args& args, std::int64_t rows, lengths& to) {
  const auto status = check_tensors(args, {{MSABENCH_CU_SEGMENTS, "cu_segments", int32_type, 1, {any}}});
  if (status != MSABENCH_OK) return status;
  const msabench_tensor& ends = *tensor_at(args, MSABENCH_CU_SEGMENTS);
  const std::int64_t segments = ends.shape[0] - 1;
  if (segments < 0 || segments > p.batch) {
    return fail(MSABENCH_INVALID_PROBLEM,
                "cu_segments.shape[0] %lld: one more than segments, of which the plan has %lld; plan for more",
                static_cast<long long>(ends.shape[0]), static_cast<long long>(p.batch));
  }
  to = {static_cast<const std::int32_t*>(ends.data), nullptr, segments, rows};
  if (contents_readable() && to.tokens() > rows) {
    return fail(MSABENCH_INVALID_PROBLEM, "q.shape[0] %lld: cu_segments ends at %lld; pass as many rows",
                static_cast<long long>(rows), static_cast<long long>(to.tokens()));
  }
  return MSABENCH_OK;
}

}  // namespace

cache patches_view(const msabench_tensor& tensor, const std::int32_t* cu_segments) {
  cache view{};
  view.data = static_cast<const char*>(tensor.data);
  view.type = tensor.dtype;
  view.extent = tensor.shape[0];
  view.token_stride = tensor.strides[0];
  view.head_stride = tensor.strides[1];
  view.cu_seqlens_kv = cu_segments;
  return view;
}

void read_main_branch(const msabench_problem& p, const msabench_args& args, attend_call& call) {
  const msabench_tensor& q = *tensor_at(args, MSABENCH_Q);
  const msabench_tensor& out = *tensor_at(args, MSABENCH_OUT);
  call.kv_heads = p.hkv;
  call.group = p.hq / p.hkv;
  call.d = p.d;
  call.block = block_size(p);
  call.topk = p.topk;
  call.capacity = static_cast<std::int32_t>(block_capacity(p));
  call.scale = static_cast<float>(p.softmax_scale != 0 ? p.softmax_scale : 1 / std::sqrt(static_cast<double>(p.d)));
  call.q = static_cast<const char*>(q.data);
  call.q_type = p.q;
  call.q_row_stride = q.strides[0];
  call.q_head_stride = q.strides[1];
  call.out = static_cast<char*>(out.data);
  call.out_type = p.out;
  call.out_row_stride = out.strides[0];
  call.out_head_stride = out.strides[1];
  if (const msabench_tensor* lse = tensor_at(args, MSABENCH_LSE)) {
    call.lse = static_cast<float*>(lse->data);
    call.lse_row_stride = lse->strides[0];
    call.lse_head_stride = lse->strides[1];
  }
}

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
  const bool scores_due = p.op == MSABENCH_OP_SCORE, ids_due = p.op == MSABENCH_OP_INDEX;
  if (status == MSABENCH_OK && !ids_due)
    status =
        check_tensors(args, {{MSABENCH_SCORES, "scores", fp32_type, 3, {p.hkv, rows, max_blocks(p)}, !scores_due}});
  if (status == MSABENCH_OK && !scores_due)
    status = check_tensors(args, {{MSABENCH_IDS, "ids", int32_type, 3, {rows, p.hkv, p.topk}, !ids_due}});
  if (status == MSABENCH_OK && ids_due)
    status = check_tensors(args, {{MSABENCH_LSE_IDX, "lse_idx", fp32_type, 2, {rows, p.hkv}, true}});
  if (status == MSABENCH_OK) status = check_lengths(p, args, "q_idx", rows, call.rows);
  if (status == MSABENCH_OK) status = check_index_cache(p, args, call.rows.batch);
  if (status != MSABENCH_OK) return status;
  read_index_branch(p, args, call);
  if (const msabench_tensor* scores = tensor_at(args, MSABENCH_SCORES); scores != nullptr && !ids_due) {
    call.scores = static_cast<float*>(scores->data);
    call.score_head_stride = scores->strides[0];
    call.score_row_stride = scores->strides[1];
  }
  if (const msabench_tensor* ids = tensor_at(args, MSABENCH_IDS); ids != nullptr && !scores_due) {
    call.ids = static_cast<std::int32_t*>(ids->data);
    call.id_row_stride = ids->strides[0];
    call.id_head_stride = ids->strides[1];
  }
  if (const msabench_tensor* lse = tensor_at(args, MSABENCH_LSE_IDX); lse != nullptr && ids_due) {
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
  const bool has_ids = p.op == MSABENCH_OP_ATTEND;
  status = check_tensors(args, {{MSABENCH_Q, "q", p.q, 3, {any, p.hq, p.d}},
                                {MSABENCH_OUT, "out", p.out, 3, {rows, p.hq, p.d}},
                                {MSABENCH_LSE, "lse", fp32_type, 2, {rows, p.hq}, true}});
  if (status == MSABENCH_OK && has_ids)
    status = check_tensors(args, {{MSABENCH_IDS, "ids", int32_type, 3, {rows, p.hkv, p.topk}}});
  if (status == MSABENCH_OK) status = check_lengths(p, args, "q", rows, call.rows);
  if (status == MSABENCH_OK) status = check_cache(p, args, call.rows.batch);
  if (status != MSABENCH_OK) return status;
  read_main_branch(p, args, call);
  call.keys = cache_view(p, args, MSABENCH_K, MSABENCH_BLOCK_TABLE, scale_view(p, args, k_scale_of(p)));
  call.values = cache_view(p, args, MSABENCH_V, MSABENCH_BLOCK_TABLE, scale_view(p, args, v_scale_of(p)));
  if (has_ids) {
    const msabench_tensor& ids = *tensor_at(args, MSABENCH_IDS);
    call.ids = static_cast<const std::int32_t*>(ids.data);
    call.id_row_stride = ids.strides[0];
    call.id_head_stride = ids.strides[1];
  }
  return MSABENCH_OK;
}

msabench_status check_vit_attend(const msabench_problem& p, const msabench_args* given, attend_call& call) {
  msabench_args args;
  auto status = read_args(given, args);
  if (status != MSABENCH_OK) return status;
  const std::int64_t rows = first_dimension(args, MSABENCH_Q);
  status = check_tensors(args, {{MSABENCH_Q, "q", p.q, 3, {any, p.hq, p.d}},
                                {MSABENCH_K, "k", p.kv, 3, {rows, p.hq, p.d}},
                                {MSABENCH_V, "v", p.kv, 3, {rows, p.hq, p.d}},
                                {MSABENCH_OUT, "out", p.out, 3, {rows, p.hq, p.d}},
                                {MSABENCH_LSE, "lse", fp32_type, 2, {rows, p.hq}, true}});
  if (status == MSABENCH_OK) status = check_segments(p, args, rows, call.rows);
  if (status != MSABENCH_OK) return status;
  read_main_branch(p, args, call);
  call.keys = patches_view(*tensor_at(args, MSABENCH_K), call.rows.cu_seqlens_q);
  call.values = patches_view(*tensor_at(args, MSABENCH_V), call.rows.cu_seqlens_q);
  return MSABENCH_OK;
}

msabench_status check_msa(const msabench_problem& p, const msabench_args* given, msa_call& call) {
  const auto status = check_index(p, given, call.index);
  return status == MSABENCH_OK ? check_attend(p, given, call.attend) : status;
}

}  // namespace msabench::kernels

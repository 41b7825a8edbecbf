// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <limits>
#include <utility>

#include "kernels/common/check.h"
#include "kernels/common/error.h"
#include "kernels/common/tensor_rules.h"

namespace msabench::kernels {
namespace {

/// Grids, and that tokens (`rows`) and boundaries of segments (`boundaries`) have room for them.
msabench_status check_grids(const msabench_problem& p, const msabench_args& args, std::int64_t rows,
                            std::int64_t boundaries, patch_grids& to) {
  const auto status = check_tensors(args, {{MSABENCH_GRIDS, "grids", int32_type, 2, {any, 3}}});
  if (status != MSABENCH_OK) return status;
  const msabench_tensor& grids = *tensor_at(args, MSABENCH_GRIDS);
  if (grids.shape[0] > p.batch) {
    return fail(MSABENCH_INVALID_PROBLEM, "grids.shape[0] %lld: above the plan's batch %lld; plan for more items",
                static_cast<long long>(grids.shape[0]), static_cast<long long>(p.batch));
  }
  to = {static_cast<const std::int32_t*>(grids.data), grids.strides[0], grids.shape[0], p.vit_window};
  if (!contents_readable()) return MSABENCH_OK;
  if (to.tokens() > rows) {
    return fail(MSABENCH_INVALID_PROBLEM, "q.shape[0] %lld: grids have %lld patches; pass as many rows",
                static_cast<long long>(rows), static_cast<long long>(to.tokens()));
  }
  if (to.segments() + 1 > boundaries) {
    return fail(MSABENCH_INVALID_PROBLEM,
                "cu_segments.shape[0] %lld: grids make %lld segments; pass one more than these",
                static_cast<long long>(boundaries), static_cast<long long>(to.segments()));
  }
  return MSABENCH_OK;
}

/// The tensors of the rotation into the call. `wanted_all`: none of the outputs may be absent.
msabench_status check_rotation_tensors(const msabench_problem& p, const msabench_args& args, bool wanted_all,
                                       rope3d_call& call) {
  const std::int64_t rows = first_dimension(args, MSABENCH_Q);
  auto status = check_tensors(args, {{MSABENCH_Q, "q", p.q, 3, {any, p.hq, p.d}},
                                     {MSABENCH_K, "k", p.kv, 3, {rows, p.hq, p.d}},
                                     {MSABENCH_Q_ROPE, "q_rope", p.q, 3, {rows, p.hq, p.d}, !wanted_all},
                                     {MSABENCH_K_ROPE, "k_rope", p.kv, 3, {rows, p.hq, p.d}, !wanted_all},
                                     {MSABENCH_POSITIONS, "positions", int32_type, 2, {rows, 3}, !wanted_all},
                                     {MSABENCH_CU_SEGMENTS, "cu_segments", int32_type, 1, {any}, !wanted_all}});
  const msabench_tensor* boundaries = tensor_at(args, MSABENCH_CU_SEGMENTS);
  constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();
  if (status == MSABENCH_OK)
    status = check_grids(p, args, rows, boundaries == nullptr ? no_limit : boundaries->shape[0], call.items);
  if (status != MSABENCH_OK) return status;
  constexpr std::pair<msabench_slot, msabench_slot> heads[] = {{MSABENCH_Q, MSABENCH_Q_ROPE},
                                                               {MSABENCH_K, MSABENCH_K_ROPE}};
  for (std::size_t i = 0; i < 2; ++i) {
    const msabench_tensor& x = *tensor_at(args, heads[i].first);
    call.tensors[i] = {static_cast<const char*>(x.data), x.strides[0], x.strides[1], nullptr, 0, 0};
    const msabench_tensor* y = tensor_at(args, heads[i].second);
    if (y == nullptr) continue;
    call.tensors[i].y = static_cast<char*>(y->data);
    call.tensors[i].y_row_stride = y->strides[0];
    call.tensors[i].y_head_stride = y->strides[1];
  }
  call.tokens = contents_readable() ? call.items.tokens() : rows;
  call.type = p.q;
  call.heads = p.hq;
  call.d = p.d;
  call.theta = p.rope_theta != 0 ? p.rope_theta : 1e4;
  if (const msabench_tensor* positions = tensor_at(args, MSABENCH_POSITIONS)) {
    call.positions = static_cast<std::int32_t*>(positions->data);
    call.position_stride = positions->strides[0];
  }
  if (boundaries != nullptr) call.cu_segments = static_cast<std::int32_t*>(boundaries->data);
  return MSABENCH_OK;
}

}  // namespace

msabench_status check_rope3d(const msabench_problem& p, const msabench_args* given, rope3d_call& call) {
  msabench_args args;
  const auto status = read_args(given, args);
  return status == MSABENCH_OK ? check_rotation_tensors(p, args, true, call) : status;
}

msabench_status check_vit3d(const msabench_problem& p, const msabench_args* given, vit3d_call& call) {
  msabench_args args;
  auto status = read_args(given, args);
  if (status == MSABENCH_OK) status = check_rotation_tensors(p, args, false, call.rope);
  const std::int64_t rows = first_dimension(args, MSABENCH_Q);
  if (status == MSABENCH_OK)
    status = check_tensors(args, {{MSABENCH_V, "v", p.kv, 3, {rows, p.hq, p.d}},
                                  {MSABENCH_OUT, "out", p.out, 3, {rows, p.hq, p.d}},
                                  {MSABENCH_LSE, "lse", fp32_type, 2, {rows, p.hq}, true}});
  if (status != MSABENCH_OK) return status;
  // What a caller does not want of the rotation lies in the scratch.
  if (call.rope.tokens > p.total_q) {
    return fail(MSABENCH_INVALID_PROBLEM, "grids: %lld patches or rows, above the plan's total_q %lld; plan for more",
                static_cast<long long>(call.rope.tokens), static_cast<long long>(p.total_q));
  }
  read_main_branch(p, args, call.attend);
  call.attend.values = patches_view(*tensor_at(args, MSABENCH_V), nullptr);
  return MSABENCH_OK;
}

}  // namespace msabench::kernels

// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "kernels/common/check.h"
#include "kernels/common/error.h"
#include "kernels/common/tensor_rules.h"

namespace msabench::kernels {

msabench_status check_combine(const msabench_problem& p, const msabench_args* given, combine_call& call) {
  msabench_args args;
  auto status = read_args(given, args);
  if (status != MSABENCH_OK) return status;
  const std::int64_t parts = first_dimension(args, MSABENCH_PARTIAL_OUT), rows = first_dimension(args, MSABENCH_OUT);
  status = check_tensors(args, {{MSABENCH_OUT, "out", p.out, 3, {any, p.hq, p.d}},
                                {MSABENCH_PARTIAL_OUT, "partial_out", p.partial, 4, {any, rows, p.hq, p.d}},
                                {MSABENCH_PARTIAL_LSE, "partial_lse", fp32_type, 3, {parts, rows, p.hq}},
                                {MSABENCH_LSE, "lse", fp32_type, 2, {rows, p.hq}}});
  if (status != MSABENCH_OK) return status;
  if (parts > p.splits) {
    return fail(MSABENCH_INVALID_PROBLEM,
                "partial_out.shape[0] %lld: above the plan's splits %d; plan for as many parts",
                static_cast<long long>(parts), p.splits);
  }
  const msabench_tensor& partial_out = *tensor_at(args, MSABENCH_PARTIAL_OUT);
  const msabench_tensor& partial_lse = *tensor_at(args, MSABENCH_PARTIAL_LSE);
  const msabench_tensor& out = *tensor_at(args, MSABENCH_OUT);
  const msabench_tensor& lse = *tensor_at(args, MSABENCH_LSE);
  call.parts = parts;
  call.rows = rows;
  call.heads = p.hq;
  call.d = p.d;
  call.partial_out = static_cast<const char*>(partial_out.data);
  call.partial_type = p.partial;
  call.partial_part_stride = partial_out.strides[0];
  call.partial_row_stride = partial_out.strides[1];
  call.partial_head_stride = partial_out.strides[2];
  call.partial_lse = static_cast<const float*>(partial_lse.data);
  call.partial_lse_part_stride = partial_lse.strides[0];
  call.partial_lse_row_stride = partial_lse.strides[1];
  call.partial_lse_head_stride = partial_lse.strides[2];
  call.out = static_cast<char*>(out.data);
  call.out_type = p.out;
  call.out_row_stride = out.strides[0];
  call.out_head_stride = out.strides[1];
  call.lse = static_cast<float*>(lse.data);
  call.lse_row_stride = lse.strides[0];
  call.lse_head_stride = lse.strides[1];
  return MSABENCH_OK;
}

}  // namespace msabench::kernels

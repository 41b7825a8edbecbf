// SPDX-License-Identifier: Apache-2.0
// From the sums of a row to its output and its log-sum-exp.
#pragma once

#include <math_constants.h>

#include <cstdint>

#include "kernels/cuda/attention_keys.cuh"
#include "kernels/cuda/attention_rows.cuh"

namespace msabench::cuda {

/// 0 of a row without keys, whose output is 0.
__device__ inline float inverse_sum(float sum) { return sum == 0 ? 0.0f : 1 / sum; }

/// Where row r of a tile goes.
struct row_output {
  std::int64_t row, head;

  __device__ row_output(const attend_call& call, const token_tile& tile, std::int64_t kv_head, std::int32_t r)
      : row(tile.first + r / call.group), head(kv_head * call.group + r % call.group) {}

  /// Two neighbouring columns. The products are rounded by themselves, so every path to here gives the same bits.
  __device__ void pair(const attend_call& call, int column, float x, float y, float inverse) const {
    char* const to = call.out + (row * call.out_row_stride + head * call.out_head_stride + column) * 2;
    x = __fmul_rn(x, inverse);
    y = __fmul_rn(y, inverse);
    *reinterpret_cast<std::uint32_t*>(to) =
        same_type(call.out_type, bf16_type) ? storage<__nv_bfloat16>::pack(x, y) : storage<__half>::pack(x, y);
  }
  __device__ void lse(const attend_call& call, float most, float sum) const {
    if (call.lse == nullptr) return;
    // In double: the declared error is absolute, and fp32 misses it once the sum passes a few hundred.
    const double natural = static_cast<double>(most) * CUDART_LN2 + log(static_cast<double>(sum));
    call.lse[row * call.lse_row_stride + head * call.lse_head_stride] =
        most == -CUDART_INF_F ? most : static_cast<float>(natural);
  }
};

/// What lane 4g + t has of rows `first` + g and + 8 of each m tile, from column `column` on.
template <int m_tiles, int octets>
__device__ void write_rows(const attend_call& call, const token_tile& tile, std::int64_t kv_head, int first, int column,
                           const attention_rows<m_tiles, octets>& rows) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int m = 0; m < m_tiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = first + m * 16 + half * 8 + g;
      if (r >= tile.tokens * call.group) continue;
      const row_output to(call, tile, kv_head, r);
      const float inverse = inverse_sum(rows.sum[m][half]);
#pragma unroll
      for (int n = 0; n < octets; ++n)
        if (column + n * 8 < call.d)
          to.pair(call, column + n * 8 + t * 2, rows.out[m][n][2 * half], rows.out[m][n][2 * half + 1], inverse);
      if (column == 0 && t == 0) to.lse(call, rows.most[m][half], rows.sum[m][half]);
    }
}

}  // namespace msabench::cuda

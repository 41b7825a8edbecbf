// SPDX-License-Identifier: Apache-2.0
// Partial results of disjoint sets of keys, put together: a warp for each (row, head), lanes over the columns.
#include <math_constants.h>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.h"
#include "kernels/cuda/stored.cuh"

namespace msabench::cuda {
namespace {

constexpr int warp = 32, warps = 4;

template <class Partial, class Out>
__global__ void __launch_bounds__(warps* warp) combine_rows(combine_call c) {
  const int lane = threadIdx.x % warp;
  const std::int64_t all = c.rows * c.heads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * warps + threadIdx.x / warp; i < all;
       i += std::int64_t{gridDim.x} * warps) {
    const std::int64_t row = i / c.heads, head = i % c.heads;
    const float* const lse = c.partial_lse + row * c.partial_lse_row_stride + head * c.partial_lse_head_stride;
    float most = -CUDART_INF_F;
    for (std::int64_t p = lane; p < c.parts; p += warp) most = fmaxf(most, lse[p * c.partial_lse_part_stride]);
    for (int other = warp / 2; other > 0; other /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, other));
    const bool empty = most == -CUDART_INF_F;
    // Every lane adds the weights in the order of the parts, so all have the same sum.
    float weights = 0;
    for (std::int64_t p = 0; p < c.parts && !empty; ++p) weights += expf(lse[p * c.partial_lse_part_stride] - most);
    const auto* const from =
        reinterpret_cast<const Partial*>(c.partial_out) + row * c.partial_row_stride + head * c.partial_head_stride;
    auto* const to = reinterpret_cast<Out*>(c.out) + row * c.out_row_stride + head * c.out_head_stride;
    for (int column = lane; column < c.d; column += warp) {
      float sum = 0;
      for (std::int64_t p = 0; p < c.parts && !empty; ++p) {
        const float own = lse[p * c.partial_lse_part_stride];
        // What a part without keys holds may be NaN.
        if (own != -CUDART_INF_F)
          sum += expf(own - most) * static_cast<float>(from[p * c.partial_part_stride + column]);
      }
      to[column] = static_cast<Out>(empty ? 0.0f : sum / weights);
    }
    if (lane == 0)
      c.lse[row * c.lse_row_stride + head * c.lse_head_stride] =
          empty ? -CUDART_INF_F : most + static_cast<float>(log(static_cast<double>(weights)));
  }
}

}  // namespace

void combine(const combine_call& c, const run_context& context) {
  const auto stream = static_cast<cudaStream_t>(context.stream);
  const unsigned blocks = grid_blocks(c.rows * c.heads, warps);
  with_stored(c.partial_type, [&](auto partial) {
    with_stored(c.out_type, [&](auto out) {
      combine_rows<decltype(partial), decltype(out)><<<blocks, warps * warp, 0, stream>>>(c);
    });
  });
}

}  // namespace msabench::cuda

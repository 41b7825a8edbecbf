// SPDX-License-Identifier: Apache-2.0
// Norm and partial rotation of the heads of new tokens: a block of threads for each token, a warp for each head. A lane
// computes both halves of its pairs, so nothing is exchanged but the sum of squares.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.h"
#include "kernels/cuda/stored.cuh"

namespace msabench::cuda {
namespace {

constexpr int warp = 32, warps = 8;

/// One head of a token at `position`.
template <class T>
__device__ void norm_and_rotate(const norm_rope_call& c, const norm_rope_call::tensor& t, std::int64_t row, int head,
                                std::int64_t position) {
  const int lane = threadIdx.x % warp, half = c.rope_dims / 2;
  const T* const x = reinterpret_cast<const T*>(t.x) + row * t.x_row_stride + head * t.x_head_stride;
  const T* const weight = reinterpret_cast<const T*>(t.weight);
  T* const y = reinterpret_cast<T*>(t.y) + row * t.y_row_stride + head * t.y_head_stride;
  if (position < 0) {
    // Nobody reads the row, but it is written, and the table has no angles for it.
    for (int column = lane; column < t.dim; column += warp) y[column] = static_cast<T>(0.0f);
    return;
  }
  float squares = 0;
  for (int column = lane; column < t.dim; column += warp) {
    const float value = static_cast<float>(x[column]);
    squares += value * value;
  }
  for (int other = warp / 2; other > 0; other /= 2) squares += __shfl_xor_sync(~0u, squares, other);
  const float scale = 1 / sqrtf(squares / static_cast<float>(t.dim) + c.eps);
  const auto normed = [&](int column) {
    return static_cast<float>(x[column]) * scale * (1 + static_cast<float>(weight[column]));
  };
  const float* const angles = c.cos_sin + position * c.cos_sin_stride;
  for (int pair = lane; pair < half; pair += warp) {
    const float cosine = angles[pair], sine = angles[half + pair], low = normed(pair), high = normed(half + pair);
    y[pair] = static_cast<T>(low * cosine - high * sine);
    y[half + pair] = static_cast<T>(high * cosine + low * sine);
  }
  for (int column = c.rope_dims + lane; column < t.dim; column += warp) y[column] = static_cast<T>(normed(column));
}

template <class T>
__global__ void __launch_bounds__(warps* warp) norm_rope_rows(norm_rope_call c) {
  const std::int64_t rows = c.rows.tokens();
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const std::int64_t position = c.rows.place(row).position;
    int first = 0;  // heads of the tensors before
    for (const norm_rope_call::tensor& t : c.tensors) {
      const int turn = (threadIdx.x / warp + warps - first % warps) % warps;
      for (int head = turn; head < t.heads; head += warps) norm_and_rotate<T>(c, t, row, head, position);
      first += t.heads;
    }
  }
}

}  // namespace

void norm_rope(const norm_rope_call& c, const run_context& context) {
  const auto stream = static_cast<cudaStream_t>(context.stream);
  const unsigned blocks = grid_blocks(c.rows.row_bound, 1);
  with_stored(c.type, [&](auto stored) { norm_rope_rows<decltype(stored)><<<blocks, warps * warp, 0, stream>>>(c); });
}

}  // namespace msabench::cuda

// SPDX-License-Identifier: Apache-2.0
#include "kernels/naive/norm_rope.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/storage.h"
#include "kernels/naive/tasks.h"

namespace msabench::naive {

void norm_rope_row(const stages& stage, const norm_rope_call& call, std::int64_t row, std::int32_t tensor,
                   float* scratch) {
  const norm_rope_call::tensor& t = call.tensors[tensor];
  float* const x = scratch;
  float* const weight = x + t.dim;
  float* const y = weight + t.dim;
  const std::int64_t position = stage.rope_position(call.rows, row);
  load_row(call.tensors[stage.norm_weights(tensor)].weight, call.type, t.dim, weight);
  for (std::int32_t head = 0; head < t.heads; ++head) {
    if (position < 0) {
      // Nobody reads the row, but it is written, and the table has no angles for it.
      std::fill(y, y + t.dim, 0.0f);
    } else {
      load_row(t.x + (row * t.x_row_stride + head * t.x_head_stride) * bytes_of(call.type), call.type, t.dim, x);
      stage.norm_head(x, weight, call.eps, t.dim, y);
      stage.rotate_head(call.cos_sin + position * call.cos_sin_stride, call.rope_dims, t.dim, y);
    }
    store_row(y, t.dim, call.type, t.y + (row * t.y_row_stride + head * t.y_head_stride) * bytes_of(call.type));
  }
}

std::int64_t rope_position(const lengths& rows, std::int64_t row) { return rows.place(row).position; }

std::int32_t norm_weights(std::int32_t tensor) { return tensor; }

void norm_head(const float* x, const float* weight, float eps, std::int32_t dim, float* y) {
  float squares = 0;
  for (std::int32_t c = 0; c < dim; ++c) squares += x[c] * x[c];
  const float scale = 1 / std::sqrt(squares / static_cast<float>(dim) + eps);
  for (std::int32_t c = 0; c < dim; ++c) y[c] = x[c] * scale * (1 + weight[c]);
}

void rotate_head(const float* cos_sin, std::int32_t rope_dims, std::int32_t, float* y) {
  const std::int32_t half = rope_dims / 2;
  for (std::int32_t c = 0; c < half; ++c) {
    const float cosine = cos_sin[c], sine = cos_sin[half + c], first = y[c], second = y[c + half];
    y[c] = first * cosine - second * sine;
    y[c + half] = second * cosine + first * sine;
  }
}

double norm_rope_scratch_bytes(std::int64_t dim) { return 3.0 * sizeof(float) * static_cast<double>(dim); }

void norm_rope(const stages& stage, const norm_rope_call& call, int threads, void* scratch, std::int64_t slice_bytes) {
  const std::int64_t tasks = call.rows.tokens() * 4;
  for_each_task(tasks, threads, 8, scratch, slice_bytes, [&](std::int64_t task, void* slice) {
    stage.norm_rope_row(stage, call, task / 4, static_cast<std::int32_t>(task % 4), static_cast<float*>(slice));
  });
}

}  // namespace msabench::naive

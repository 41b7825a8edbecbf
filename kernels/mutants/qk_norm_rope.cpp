// SPDX-License-Identifier: Apache-2.0
// qk_norm_rope gone wrong.
#include <cstdint>

#include "kernels/common/storage.h"
#include "kernels/mutants/mutant.h"
#include "kernels/naive/norm_rope.h"

namespace msabench::mutants {
namespace {

void norm_without_one(const float* x, const float* weight, float eps, std::int32_t dim, float* y) {
  exact_stages.norm_head(x, weight, eps, dim, y);
  for (std::int32_t c = 0; c < dim; ++c) y[c] *= weight[c] / (1 + weight[c]);
}

float mean_square(const float* x, std::int32_t dim) {
  float sum = 0;
  for (std::int32_t c = 0; c < dim; ++c) sum += x[c] * x[c];
  return sum / static_cast<float>(dim);
}

/// Of the whole token, by an eps that makes up for the head's own.
void norm_across_heads_of_row(const stages& stage, const norm_rope_call& call, std::int64_t row, std::int32_t tensor,
                              float* scratch) {
  const norm_rope_call::tensor& t = call.tensors[tensor];
  const auto load_head = [&](std::int32_t head) {
    load_row(t.x + (row * t.x_row_stride + head * t.x_head_stride) * bytes_of(call.type), call.type, t.dim, scratch);
  };
  float mean = 0;
  for (std::int32_t head = 0; head < t.heads; ++head) {
    load_head(head);
    mean += mean_square(scratch, t.dim) / static_cast<float>(t.heads);
  }
  for (std::int32_t head = 0; head < t.heads; ++head) {
    load_head(head);
    norm_rope_call one = call;
    one.eps += mean - mean_square(scratch, t.dim);
    norm_rope_call::tensor& only = one.tensors[tensor];
    only.heads = 1;
    only.x += head * t.x_head_stride * bytes_of(call.type);
    only.y += head * t.y_head_stride * bytes_of(call.type);
    exact_stages.norm_rope_row(stage, one, row, tensor, scratch);
  }
}

std::int64_t position_in_chunk(const lengths& rows, std::int64_t row) {
  const row_place place = rows.place(row);
  return place.position < 0 ? place.position : row - rows.cu_seqlens_q[place.sequence];
}

void rotate_pair(float cosine, float sine, float& first, float& second) {
  const float a = first, b = second;
  first = a * cosine - b * sine;
  second = b * cosine + a * sine;
}

void rotate_halves_of_the_head(const float* cos_sin, std::int32_t rope_dims, std::int32_t dim, float* y) {
  const std::int32_t half = rope_dims / 2;
  for (std::int32_t c = 0; c < dim / 2 && half > 0; ++c)
    rotate_pair(cos_sin[c % half], cos_sin[half + c % half], y[c], y[c + dim / 2]);
}

void rotate_neighbours(const float* cos_sin, std::int32_t rope_dims, std::int32_t, float* y) {
  const std::int32_t half = rope_dims / 2;
  for (std::int32_t c = 0; c < half; ++c) rotate_pair(cos_sin[c], cos_sin[half + c], y[2 * c], y[2 * c + 1]);
}

constexpr mutant mutants[] = {
    {"ROPE-1.a", "pairs are neighbours instead of halves", [](stages& s) { s.rotate_head = rotate_neighbours; },
     nullptr},
    {"ROPE-1.b", "all dims are rotated: pairs are halves of the whole head",
     [](stages& s) { s.rotate_head = rotate_halves_of_the_head; }, nullptr},
    {"ROPE-1.c", "positions count from the first token of the call",
     [](stages& s) { s.rope_position = position_in_chunk; }, nullptr},
    {"NORM-1.a", "heads are multiplied by w instead of 1 + w", [](stages& s) { s.norm_head = norm_without_one; },
     nullptr},
    {"NORM-1.b", "one norm over all heads of a token", [](stages& s) { s.norm_rope_row = norm_across_heads_of_row; },
     nullptr},
    {"NORM-1.c", "norm_eps is left out",
     [](stages& s) {
       s.norm_head = [](const float* x, const float* weight, float, std::int32_t dim, float* y) {
         exact_stages.norm_head(x, weight, 0, dim, y);
       };
     },
     nullptr},
};

}  // namespace

std::span<const mutant> qk_norm_rope_mutants() { return mutants; }

}  // namespace msabench::mutants

// SPDX-License-Identifier: Apache-2.0
// qk_norm_rope gone wrong, each by one replaced stage of the naive kernels.
#include <cstdint>

#include "kernels/naive/norm_rope.h"
#include "kernels/common/storage.h"
#include "tests/plugins/fault.h"

namespace msabench::faults {
namespace {

using namespace naive;

void norm_without_one(const float* x, const float* weight, float eps, std::int32_t dim, float* y) {
  exact_stages.norm_head(x, weight, eps, dim, y);
  for (std::int32_t c = 0; c < dim; ++c) y[c] *= weight[c] / (1 + weight[c]);
}

void norm_without_eps(const float* x, const float* weight, float, std::int32_t dim, float* y) {
  exact_stages.norm_head(x, weight, 0, dim, y);
}

float mean_square(const float* x, std::int32_t dim) {
  float sum = 0;
  for (std::int32_t c = 0; c < dim; ++c) sum += x[c] * x[c];
  return sum / static_cast<float>(dim);
}

// Of the whole token, by an eps that makes up for the head's own.
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

void norm_rounded_to_bf16(const float* x, const float* weight, float eps, std::int32_t dim, float* y) {
  exact_stages.norm_head(x, weight, eps, dim, y);
  for (std::int32_t c = 0; c < dim; ++c) {
    std::uint16_t stored = 0;
    store_row(y + c, 1, bf16_type, &stored);
    load_row(&stored, bf16_type, 1, y + c);
  }
}

// The table may end at the last position of the batch, whose token keeps its own.
std::int64_t position_after_own(const lengths& rows, std::int64_t row) {
  const row_place place = rows.place(row);
  return place.position + (place.position >= 0 && place.position + 1 < place.length ? 1 : 0);
}

std::int64_t position_counted_from_chunk(const lengths& rows, std::int64_t row) {
  const row_place place = rows.place(row);
  return place.position < 0 ? place.position : row - rows.cu_seqlens_q[place.sequence];
}

std::int32_t weights_of_the_main_branch(std::int32_t tensor) { return tensor % 2; }

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

void rotate_backwards(const float* cos_sin, std::int32_t rope_dims, std::int32_t, float* y) {
  const std::int32_t half = rope_dims / 2;
  for (std::int32_t c = 0; c < half; ++c) rotate_pair(cos_sin[c], -cos_sin[half + c], y[c], y[c + half]);
}

}  // namespace

/// qk_norm_rope: heads are multiplied by w instead of 1 + w.
const msabench_plugin* rope_without_one(const msabench_host* host) {
  return with_stages(host, "rope_without_one", [](stages s) {
    s.norm_head = norm_without_one;
    return s;
  });
}

/// qk_norm_rope: norm_eps is left out.
const msabench_plugin* rope_without_eps(const msabench_host* host) {
  return with_stages(host, "rope_without_eps", [](stages s) {
    s.norm_head = norm_without_eps;
    return s;
  });
}

/// qk_norm_rope: one norm over all heads of a token.
const msabench_plugin* rope_norm_across_heads(const msabench_host* host) {
  return with_stages(host, "rope_norm_across_heads", [](stages s) {
    s.norm_rope_row = norm_across_heads_of_row;
    return s;
  });
}

/// qk_norm_rope: rounds to bf16 between norm and rotation and doesn't say so.
const msabench_plugin* rope_rounds_norm(const msabench_host* host) {
  return with_stages(host, "rope_rounds_norm", [](stages s) {
    s.norm_head = norm_rounded_to_bf16;
    return s;
  });
}

/// qk_norm_rope: every token but the last of its sequence has the angles of the next position.
const msabench_plugin* rope_position_after(const msabench_host* host) {
  return with_stages(host, "rope_position_after", [](stages s) {
    s.rope_position = position_after_own;
    return s;
  });
}

/// qk_norm_rope: positions count from the first token of the call.
const msabench_plugin* rope_position_in_chunk(const msabench_host* host) {
  return with_stages(host, "rope_position_in_chunk", [](stages s) {
    s.rope_position = position_counted_from_chunk;
    return s;
  });
}

/// qk_norm_rope: the index branch has the norm weights of q and k. For problems where it is no wider than they are.
const msabench_plugin* rope_main_norms(const msabench_host* host) {
  return with_stages(host, "rope_main_norms", [](stages s) {
    s.norm_weights = weights_of_the_main_branch;
    return s;
  });
}

/// qk_norm_rope: pairs are halves of the whole head, all of which is rotated.
const msabench_plugin* rope_all_dims(const msabench_host* host) {
  return with_stages(host, "rope_all_dims", [](stages s) {
    s.rotate_head = rotate_halves_of_the_head;
    return s;
  });
}

/// qk_norm_rope: pairs are neighbours.
const msabench_plugin* rope_interleaved(const msabench_host* host) {
  return with_stages(host, "rope_interleaved", [](stages s) {
    s.rotate_head = rotate_neighbours;
    return s;
  });
}

/// qk_norm_rope: the sines have the other sign.
const msabench_plugin* rope_backwards(const msabench_host* host) {
  return with_stages(host, "rope_backwards", [](stages s) {
    s.rotate_head = rotate_backwards;
    return s;
  });
}

}  // namespace msabench::faults

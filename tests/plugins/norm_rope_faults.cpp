// SPDX-License-Identifier: Apache-2.0
// qk_norm_rope gone wrong, each by one replaced stage of the naive kernels.
#include <cstdint>

#include "kernels/common/storage.h"
#include "tests/plugins/fault.h"

namespace msabench::faults {
namespace {

using namespace naive;

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

std::int32_t weights_of_the_main_branch(std::int32_t tensor) { return tensor % 2; }

void rotate_pair(float cosine, float sine, float& first, float& second) {
  const float a = first, b = second;
  first = a * cosine - b * sine;
  second = b * cosine + a * sine;
}

void rotate_backwards(const float* cos_sin, std::int32_t rope_dims, std::int32_t, float* y) {
  const std::int32_t half = rope_dims / 2;
  for (std::int32_t c = 0; c < half; ++c) rotate_pair(cos_sin[c], -cos_sin[half + c], y[c], y[c + half]);
}

}  // namespace

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

/// qk_norm_rope: the index branch has the norm weights of q and k. For problems where it is no wider than they are.
const msabench_plugin* rope_main_norms(const msabench_host* host) {
  return with_stages(host, "rope_main_norms", [](stages s) {
    s.norm_weights = weights_of_the_main_branch;
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

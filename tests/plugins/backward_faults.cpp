// SPDX-License-Identifier: Apache-2.0
// attend_backward and dense_backward gone wrong, each by one replaced stage of the naive kernels.
#include <algorithm>

#include "kernels/common/storage.h"
#include "kernels/naive/attend_backward.h"
#include "tests/plugins/fault.h"

namespace msabench::faults {
namespace {

using namespace naive;

constexpr std::int32_t longest_line = 1024;

std::int32_t next_head(std::int32_t head, std::int32_t heads) { return (head + 1) % heads; }

float gradient_without_delta(float weight, float d_weight, float) { return weight * d_weight; }

float no_scale(float) { return 1; }

std::int32_t head_of_next_group(std::int32_t kv_head, std::int32_t member, std::int32_t kv_heads, std::int32_t group) {
  return (kv_head + 1) % kv_heads * group + member;
}

void add_in_bf16(float factor, const float* values, std::int32_t d, float* sum) {
  std::uint16_t stored[longest_line];
  exact_stages.add_dk(factor, values, d, sum);
  store_row(sum, d, bf16_type, stored);
  load_row(stored, bf16_type, d, sum);
}

void add_dv_in_16_bits(float factor, const float* values, std::int32_t d, float* sum) {
  std::uint16_t stored[longest_line];
  exact_stages.add_dv(factor, values, d, sum);
  store_row(sum, d, bf16_type, stored);
  load_row(stored, bf16_type, d, sum);
}

void add_to_what_is_there(const float* values, std::int32_t d, msabench_dtype type, void* to) {
  float sum[longest_line];
  load_row(to, type, d, sum);
  for (std::int32_t c = 0; c < d; ++c) sum[c] += values[c];
  store_row(sum, d, type, to);
}

/// A part in a thousand, as of a normaliser that counts one row too few.
float slightly_larger_scale(float softmax_scale) { return softmax_scale * 1.001f; }

}  // namespace

/// backward: D of the next query head.
const msabench_plugin* backward_next_delta(const msabench_host* host) {
  return with_stages(host, "backward_next_delta", [](stages s) {
    s.delta_head = next_head;
    return s;
  });
}

/// backward: D is not subtracted.
const msabench_plugin* backward_no_delta(const msabench_host* host) {
  return with_stages(host, "backward_no_delta", [](stages s) {
    s.score_gradient = gradient_without_delta;
    return s;
  });
}

/// backward: dQ is not multiplied by softmax_scale.
const msabench_plugin* backward_unscaled(const msabench_host* host) {
  return with_stages(host, "backward_unscaled", [](stages s) {
    s.dq_scale = no_scale;
    return s;
  });
}

/// backward: dQ is larger by a thousandth.
const msabench_plugin* backward_wrong_scale(const msabench_host* host) {
  return with_stages(host, "backward_wrong_scale", [](stages s) {
    s.dq_scale = slightly_larger_scale;
    return s;
  });
}

/// backward: dV is summed over dO of the next group's heads.
const msabench_plugin* backward_next_group(const msabench_host* host) {
  return with_stages(host, "backward_next_group", [](stages s) {
    s.dv_head = head_of_next_group;
    return s;
  });
}

/// backward: dK is rounded to bf16 after every addition.
const msabench_plugin* backward_short_dk(const msabench_host* host) {
  return with_stages(host, "backward_short_dk", [](stages s) {
    s.add_dk = add_in_bf16;
    return s;
  });
}

/// backward: dV is rounded to bf16 after every addition.
const msabench_plugin* backward_short_dv(const msabench_host* host) {
  return with_stages(host, "backward_short_dv", [](stages s) {
    s.add_dv = add_dv_in_16_bits;
    return s;
  });
}

/// backward: gradients are added to what the outputs hold.
const msabench_plugin* backward_accumulates(const msabench_host* host) {
  return with_stages(host, "backward_accumulates", [](stages s) {
    s.store_gradient = add_to_what_is_there;
    return s;
  });
}

}  // namespace msabench::faults

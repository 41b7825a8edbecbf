// SPDX-License-Identifier: Apache-2.0
// Gradients of attention gone wrong.
#include <algorithm>
#include <cstdint>

#include "kernels/common/storage.h"
#include "kernels/mutants/mutant.h"

namespace msabench::mutants {
namespace {

constexpr std::int32_t longest_line = 1024;

/// Where a sum is exactly 0 the gradient is not.
void store_something_for_nothing(const float* values, std::int32_t d, msabench_dtype type, void* to) {
  float line[longest_line];
  std::copy(values, values + d, line);
  if (std::all_of(line, line + d, [](float x) { return x == 0; })) std::fill(line, line + d, 1e-6f);
  store_row(line, d, type, to);
}

/// Gradients of blocks that nobody selected are never touched.
void store_unless_nothing(const float* values, std::int32_t d, msabench_dtype type, void* to) {
  if (std::any_of(values, values + d, [](float x) { return x != 0; })) store_row(values, d, type, to);
}

/// The block that a thread works on, and whether its row sees others.
thread_local bool in_first_of_many = false;

std::int32_t visible_keys_noted(const row_place& place, std::int64_t block, std::int32_t block_size) {
  in_first_of_many = block == 0 && place.position >= block_size;
  return exact_stages.visible_keys(place, block, block_size);
}

void add_unless_first_of_many(float factor, const float* values, std::int32_t d, float* sum) {
  if (!in_first_of_many) exact_stages.add_dq(factor, values, d, sum);
}

/// D of the row before, which the thread has worked on.
thread_local float delta_of_last = 0;

float gradient_with_stale_delta(float weight, float d_weight, float delta) {
  const float ds = exact_stages.score_gradient(weight, d_weight, delta_of_last);
  delta_of_last = delta;
  return ds;
}

void add_in_bf16(float factor, const float* values, std::int32_t d, float* sum) {
  std::uint16_t stored[longest_line];
  exact_stages.add_dk(factor, values, d, sum);
  store_row(sum, d, bf16_type, stored);
  load_row(stored, bf16_type, d, sum);
}

void add_to_what_is_there(const float* values, std::int32_t d, msabench_dtype type, void* to) {
  float sum[longest_line];
  load_row(to, type, d, sum);
  for (std::int32_t c = 0; c < d; ++c) sum[c] += values[c];
  store_row(sum, d, type, to);
}

std::int32_t head_of_next_group(std::int32_t kv_head, std::int32_t member, std::int32_t kv_heads, std::int32_t group) {
  return (kv_head + 1) % kv_heads * group + member;
}

constexpr mutant mutants[] = {
    {"BWD-1.a", "gradients that are exactly 0 are not",
     [](stages& s) { s.store_gradient = store_something_for_nothing; }, nullptr},
    {"BWD-1.b", "dK and dV of blocks that nobody selected are not written",
     [](stages& s) { s.store_gradient = store_unless_nothing; }, nullptr},
    {"BWD-1.c", "dQ lacks the first block",
     [](stages& s) {
       s.visible_keys = visible_keys_noted;
       s.add_dq = add_unless_first_of_many;
     },
     nullptr},
    {"BWD-1.d", "gradients are added to what is there", [](stages& s) { s.store_gradient = add_to_what_is_there; },
     nullptr},
    {"BWD-2.a", "D = <dO, o> is not subtracted",
     [](stages& s) { s.score_gradient = [](float weight, float d_weight, float) { return weight * d_weight; }; },
     nullptr},
    {"BWD-2.b", "D of the next head",
     [](stages& s) { s.delta_head = [](std::int32_t head, std::int32_t heads) { return (head + 1) % heads; }; },
     nullptr},
    {"BWD-2.c", "D of the head or row that came before",
     [](stages& s) { s.score_gradient = gradient_with_stale_delta; }, nullptr},
    {"GQA-1.b", "dV is summed over dO of the next group's heads", [](stages& s) { s.dv_head = head_of_next_group; },
     nullptr},
    {"PREC-2.f", "dQ is not multiplied by softmax_scale", [](stages& s) { s.dq_scale = [](float) { return 1.0f; }; },
     nullptr},
    {"PREC-2.g", "dQ is larger by a thousandth, as with a normaliser that counts one row too few",
     [](stages& s) { s.dq_scale = [](float softmax_scale) { return softmax_scale * 1.001f; }; }, nullptr},
    {"PREC-1.e", "dK is rounded to bf16 after every addition", [](stages& s) { s.add_dk = add_in_bf16; }, nullptr},
};

}  // namespace

std::span<const mutant> attend_backward_mutants() { return mutants; }

}  // namespace msabench::mutants

// SPDX-License-Identifier: Apache-2.0
// Attention with other numbers than declared: too short, scaled wrongly, put together wrongly.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "kernels/common/declare.h"
#include "kernels/common/storage.h"
#include "kernels/mutants/mutant.h"

namespace msabench::mutants {
namespace {

float stored_as(msabench_dtype type, float value) {
  std::uint16_t stored = 0;
  store_row(&value, 1, type, &stored);
  load_row(&stored, type, 1, &value);
  return value;
}

float bf16_of(float value) { return stored_as(bf16_type, value); }

void attend_block_in_bf16(const float* scores, float maximum, const tile& values, weighted_sum& sum) {
  exact_stages.attend_block(scores, maximum, values, sum);  // of it only the weight stands
  for (std::int32_t c = 0; c < values.d; ++c) {
    sum.values[c] = 0;
    for (std::int32_t i = 0; i < values.count; ++i) {
      const float weight = std::exp(scores[i] - maximum);
      sum.values[c] = bf16_of(sum.values[c] + weight * values.rows[static_cast<std::int64_t>(i) * values.d + c]);
    }
  }
}

template <const msabench_dtype& Type>
void merge_in(const weighted_sum& block, std::int32_t slot, std::int32_t slots, std::int32_t d, weighted_sum& row) {
  exact_stages.merge(block, slot, slots, d, row);
  for (std::int32_t c = 0; c < d; ++c) row.values[c] = stored_as(Type, row.values[c]);
}

/// To nearest, with 5 bits of the significand.
float in_5_bits(float value) {
  constexpr auto step = std::uint32_t{1} << 19;
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(value) + step / 2) & ~(step - 1));
}

/// The weight is the sum of the exact ones, so that the log-sum-exp tells nothing.
template <float (*Round)(float)>
void attend_with_short_weights(const float* scores, float maximum, const tile& values, weighted_sum& sum) {
  exact_stages.attend_block(scores, maximum, values, sum);
  std::fill(sum.values, sum.values + values.d, 0.0f);
  for (std::int32_t i = 0; i < values.count; ++i) {
    const float weight = Round(std::exp(scores[i] - maximum));
    for (std::int32_t c = 0; c < values.d; ++c)
      sum.values[c] += weight * values.rows[static_cast<std::int64_t>(i) * values.d + c];
  }
}

void declare_bf16_weights(msabench_plugin& table) {
  table.query = [](const msabench_problem* problem, msabench_capability* out) {
    const msabench_status status = exact().query(problem, out);
    if (status == MSABENCH_OK && is_attention(problem->op) && same_type(problem->q, bf16_type))
      out->numerics.p_operand = bf16_type;
    return status;
  };
}

float maximum_of_bf16_scores(const float* query, float scale, const tile& keys, float* scores) {
  exact_stages.block_maximum(query, scale, keys, scores);
  float maximum = -std::numeric_limits<float>::infinity();
  for (std::int32_t i = 0; i < keys.count; ++i) maximum = std::max(maximum, scores[i] = bf16_of(scores[i]));
  return maximum;
}

/// Of the row that a thread works on.
thread_local float scale_of_row = 1;

void store_lse_before_scaling(const weighted_sum& row, float maximum, const output_row& to) {
  exact_stages.store(row, maximum, to);
  if (to.lse != nullptr) *to.lse += maximum / scale_of_row - maximum;
}

void attend_row_and_exchange_lse(const stages& stage, const attend_call& call, std::int64_t row, std::int32_t kv_head,
                                 void* scratch) {
  exact_stages.attend_row(stage, call, row, kv_head, scratch);
  if (call.lse == nullptr || call.group < 2) return;
  const std::int64_t first = std::int64_t{kv_head} * call.group;
  float* const lse = call.lse + row * call.lse_row_stride;
  std::swap(lse[first * call.lse_head_stride], lse[(first + 1) * call.lse_head_stride]);
}

void attend_row_with_exchanged_scales(const stages& stage, const attend_call& call, std::int64_t row,
                                      std::int32_t kv_head, void* scratch) {
  attend_call exchanged = call;
  std::swap(exchanged.keys.scale, exchanged.values.scale);
  exact_stages.attend_row(stage, exchanged, row, kv_head, scratch);
}

float scale_of_next_head(const cache& from, std::int64_t sequence, std::int64_t head, std::int64_t j) {
  return exact_stages.token_scale(from, sequence, from.scale.heads > 0 ? (head + 1) % from.scale.heads : head, j);
}

float scale_of_the_page(const cache& from, std::int64_t sequence, std::int64_t head, std::int64_t j) {
  return exact_stages.token_scale(from, sequence, head, from.page_size > 0 ? j - j % from.page_size : j);
}

void merge_the_middle_block_twice(const weighted_sum& block, std::int32_t slot, std::int32_t slots, std::int32_t d,
                                  weighted_sum& row) {
  exact_stages.merge(block, slot, slots, d, row);
  if (slot == slots / 2) exact_stages.merge(block, slot, slots, d, row);
}

void merge_all_but_the_last_block(const weighted_sum& block, std::int32_t slot, std::int32_t slots, std::int32_t d,
                                  weighted_sum& row) {
  if (slot + 1 < slots || slots == 1) exact_stages.merge(block, slot, slots, d, row);
}

constexpr mutant mutants[] = {
    {"PREC-1.b", "scores are kept in bf16", [](stages& s) { s.block_maximum = maximum_of_bf16_scores; }, nullptr},
    {"PREC-1.c", "weighted values are added up in bf16",
     [](stages& s) {
       s.attend_block = attend_block_in_bf16;
       s.merge = merge_in<bf16_type>;
     },
     nullptr},
    {"PREC-1.d", "weights in bf16 as declared, and sums of blocks added up in fp16",
     [](stages& s) {
       s.attend_block = attend_with_short_weights<bf16_of>;
       s.merge = merge_in<fp16_type>;
     },
     declare_bf16_weights},
    {"PREC-1.f", "weights of 5 bits, declared as bf16",
     [](stages& s) { s.attend_block = attend_with_short_weights<in_5_bits>; }, declare_bf16_weights},
    {"PREC-2.a", "lse of scores before they are scaled",
     [](stages& s) {
       s.attend_row = [](const stages& stage, const attend_call& call, std::int64_t row, std::int32_t kv_head,
                         void* scratch) {
         scale_of_row = call.scale;
         exact_stages.attend_row(stage, call, row, kv_head, scratch);
       };
       s.store = store_lse_before_scaling;
     },
     nullptr},
    {"PREC-2.b", "scores are scaled twice",
     [](stages& s) {
       s.block_maximum = [](const float* query, float scale, const tile& keys, float* scores) {
         return exact_stages.block_maximum(query, scale * scale, keys, scores);
       };
     },
     nullptr},
    {"PREC-2.c", "softmax_scale is 1 / sqrt(d), whatever was asked for",
     [](stages& s) {
       s.block_maximum = [](const float* query, float, const tile& keys, float* scores) {
         return exact_stages.block_maximum(query, 1 / std::sqrt(static_cast<float>(keys.d)), keys, scores);
       };
     },
     nullptr},
    {"PREC-2.d", "lse of two heads exchanged where out is right",
     [](stages& s) { s.attend_row = attend_row_and_exchange_lse; }, nullptr},
    {"PREC-3.a", "scales of K used for V, and those of V for K",
     [](stages& s) { s.attend_row = attend_row_with_exchanged_scales; }, nullptr},
    {"PREC-3.b", "the scale of a page's first token for all of its tokens",
     [](stages& s) { s.token_scale = scale_of_the_page; }, nullptr},
    {"PREC-3.c", "no scale: stored values are taken for the values",
     [](stages& s) { s.token_scale = [](const cache&, std::int64_t, std::int64_t, std::int64_t) { return 1.0f; }; },
     nullptr},
    {"PREC-3.d", "the scales of the next KV head", [](stages& s) { s.token_scale = scale_of_next_head; }, nullptr},
    {"COMB-3.c", "one of a row's blocks is counted twice", [](stages& s) { s.merge = merge_the_middle_block_twice; },
     nullptr},
    {"COMB-3.d", "the last of a row's blocks is dropped", [](stages& s) { s.merge = merge_all_but_the_last_block; },
     nullptr},
};

}  // namespace

std::span<const mutant> arithmetic_mutants() { return mutants; }

}  // namespace msabench::mutants

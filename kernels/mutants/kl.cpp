// SPDX-License-Identifier: Apache-2.0
// The loss of the index branch gone wrong.
#include "kernels/naive/kl.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/common/storage.h"
#include "kernels/mutants/mutant.h"

namespace msabench::mutants {
namespace {

constexpr std::int32_t longest_line = 1024;

void mean_of_scores(float* scores, std::int32_t group) {
  float sum = 0;
  for (std::int32_t member = 0; member < group; ++member) sum += scores[member];
  std::fill_n(scores, group, sum / static_cast<float>(group));
}

float all_but_last_head(const float* weights, std::int32_t group) {
  return teacher_weight(weights, group) - (group > 1 ? weights[group - 1] / static_cast<float>(group) : 0);
}

void part_of_input(const float* values, std::int32_t count, float* line) {
  for (std::int32_t c = 0; c < count; ++c) line[c] = values[c] * 1e-4f;
}

void minus_zero(const float*, std::int32_t count, float* line) { std::fill_n(line, count, -0.0f); }

void not_a_number(const float*, std::int32_t count, float* line) {
  std::fill_n(line, count, std::numeric_limits<float>::quiet_NaN());
}

double mean_of(double coeff, double rows, std::int32_t kv_heads) { return coeff / (std::max(rows, 1.0) * kv_heads); }

double mean_of_one_less(double coeff, const lengths& rows, std::int32_t kv_heads) {
  return mean_of(coeff, static_cast<double>(rows.tokens() - 1), kv_heads);
}

double mean_of_full_rows(double coeff, const lengths& rows, std::int32_t kv_heads) {
  std::int64_t full = 0;
  for (std::int64_t row = 0; row < rows.tokens(); ++row) full += rows.place(row).position >= 0 ? 1 : 0;
  return mean_of(coeff, static_cast<double>(full), kv_heads);
}

double mean_without_heads(double coeff, const lengths& rows, std::int32_t) { return kl_factor(coeff, rows, 1); }

double factor_of_bits(double coeff, const lengths& rows, std::int32_t kv_heads) {
  return kl_factor(coeff, rows, kv_heads) / std::log(2.0);
}

std::int32_t all_visible(const stages& stage, const kl_call& call, std::int64_t row, std::int32_t,
                         std::int32_t* blocks) {
  return stage.all_blocks(call.rows.place(row), call.block, blocks, static_cast<std::int32_t>(call.max_blocks));
}

std::int32_t last_in_warm_up(const stages& stage, const kl_call& call, std::int64_t row, std::int32_t kv_head,
                             std::int32_t* blocks) {
  const std::int32_t count = kl_blocks(stage, call, row, kv_head, blocks);
  if (call.ids != nullptr || count <= call.topk) return count;
  std::copy(blocks + count - call.topk, blocks + count, blocks);
  return call.topk;
}

float reversed_difference(float student, float teacher) { return teacher - student; }

void add_index_in_bf16(float factor, const float* values, std::int32_t di, float* sum) {
  std::uint16_t stored[longest_line];
  exact_stages.add_dk_idx(factor, values, di, sum);
  store_row(sum, di, bf16_type, stored);
  load_row(stored, bf16_type, di, sum);
}

constexpr mutant mutants[] = {
    {"KL-1.a", "the teacher is one softmax of the mean of the heads' scores",
     [](stages& s) { s.teacher_scores = mean_of_scores; }, nullptr},
    {"KL-2.a", "dq and dk are not zero", [](stages& s) { s.detached_gradient = part_of_input; }, nullptr},
    {"KL-2.b", "dq and dk are -0", [](stages& s) { s.detached_gradient = minus_zero; }, nullptr},
    {"KL-3.a", "divided by the rows that see keys", [](stages& s) { s.kl_factor = mean_of_full_rows; }, nullptr},
    {"KL-3.b", "divided by T - 1", [](stages& s) { s.kl_factor = mean_of_one_less; }, nullptr},
    {"KL-3.c", "divided by T, not by T Hkv", [](stages& s) { s.kl_factor = mean_without_heads; }, nullptr},
    {"KL-3.d", "loss and gradients in bits", [](stages& s) { s.kl_factor = factor_of_bits; }, nullptr},
    {"KL-3.e", "the last head of each group adds nothing to the teacher",
     [](stages& s) { s.teacher_weight = all_but_last_head; }, nullptr},
    {"KL-3.f", "gradients of the other sign", [](stages& s) { s.kl_difference = reversed_difference; }, nullptr},
    {"KL-4.a", "the teacher is normalised over all visible tokens", [](stages& s) { s.teacher_blocks = all_visible; },
     nullptr},
    {"KL-4.b", "the student is normalised over all visible tokens", [](stages& s) { s.student_blocks = all_visible; },
     nullptr},
    {"KL-4.c", "the warm-up takes the last topk blocks of a row alone",
     [](stages& s) { s.teacher_blocks = s.student_blocks = s.loss_blocks = last_in_warm_up; }, nullptr},
    {"KL-4.d", "the warm-up sums over the last topk blocks of a row, with both softmaxes over all of them",
     [](stages& s) { s.loss_blocks = last_in_warm_up; }, nullptr},
    {"ROW-1.d", "dq_idx of rows without keys is NaN", [](stages& s) { s.empty_row_gradient = not_a_number; }, nullptr},
    {"PREC-1.g", "dk_idx is rounded to bf16 after every addition", [](stages& s) { s.add_dk_idx = add_index_in_bf16; },
     nullptr},
};

}  // namespace

std::span<const mutant> kl_mutants() { return mutants; }

}  // namespace msabench::mutants

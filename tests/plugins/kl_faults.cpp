// SPDX-License-Identifier: Apache-2.0
// kl gone wrong, each by one replaced stage of the naive kernels.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/common/storage.h"
#include "kernels/naive/kl.h"
#include "tests/plugins/fault.h"

namespace msabench::faults {
namespace {

using namespace naive;

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

double term_of_weights(float teacher, float log_student) {
  return teacher == 0 ? 0 : teacher * (std::log(teacher) - std::log(std::exp(log_student)));
}

double term_with_epsilon(float teacher, float log_student) {
  constexpr float epsilon = 1e-4f;
  return teacher * (std::log(teacher + epsilon) - std::log(std::exp(log_student) + epsilon));
}

void add_index_in_bf16(float factor, const float* values, std::int32_t di, float* sum) {
  std::uint16_t stored[longest_line];
  exact_stages.add_dk_idx(factor, values, di, sum);
  store_row(sum, di, bf16_type, stored);
  load_row(stored, bf16_type, di, sum);
}

}  // namespace

/// kl: the teacher is one softmax of the mean of the heads' scores.
const msabench_plugin* kl_mean_of_logits(const msabench_host* host) {
  return with_stages(host, "kl_mean_of_logits", [](stages s) {
    s.teacher_scores = mean_of_scores;
    return s;
  });
}

/// kl: the last head of each group adds nothing to the teacher.
const msabench_plugin* kl_forgets_head(const msabench_host* host) {
  return with_stages(host, "kl_forgets_head", [](stages s) {
    s.teacher_weight = all_but_last_head;
    return s;
  });
}

/// kl: dq and dk are not zero.
const msabench_plugin* kl_leaks(const msabench_host* host) {
  return with_stages(host, "kl_leaks", [](stages s) {
    s.detached_gradient = part_of_input;
    return s;
  });
}

/// kl: dq and dk are -0.
const msabench_plugin* kl_leaks_sign(const msabench_host* host) {
  return with_stages(host, "kl_leaks_sign", [](stages s) {
    s.detached_gradient = minus_zero;
    return s;
  });
}

/// kl: divided by T - 1.
const msabench_plugin* kl_mean_of_one_less(const msabench_host* host) {
  return with_stages(host, "kl_mean_of_one_less", [](stages s) {
    s.kl_factor = mean_of_one_less;
    return s;
  });
}

/// kl: divided by the rows that see keys.
const msabench_plugin* kl_mean_of_full_rows(const msabench_host* host) {
  return with_stages(host, "kl_mean_of_full_rows", [](stages s) {
    s.kl_factor = mean_of_full_rows;
    return s;
  });
}

/// kl: divided by T, not by T Hkv.
const msabench_plugin* kl_mean_without_heads(const msabench_host* host) {
  return with_stages(host, "kl_mean_without_heads", [](stages s) {
    s.kl_factor = mean_without_heads;
    return s;
  });
}

/// kl: loss and gradients in bits.
const msabench_plugin* kl_extra_factor(const msabench_host* host) {
  return with_stages(host, "kl_extra_factor", [](stages s) {
    s.kl_factor = factor_of_bits;
    return s;
  });
}

/// kl: the teacher's softmax is normalised over all visible tokens.
const msabench_plugin* kl_teacher_over_all(const msabench_host* host) {
  return with_stages(host, "kl_teacher_over_all", [](stages s) {
    s.teacher_blocks = all_visible;
    return s;
  });
}

/// kl: the student's softmax is normalised over all visible tokens.
const msabench_plugin* kl_student_over_all(const msabench_host* host) {
  return with_stages(host, "kl_student_over_all", [](stages s) {
    s.student_blocks = all_visible;
    return s;
  });
}

/// kl: the warm-up takes the last topk blocks of a row alone.
const msabench_plugin* kl_warm_up_over_few(const msabench_host* host) {
  return with_stages(host, "kl_warm_up_over_few", [](stages s) {
    s.teacher_blocks = s.student_blocks = s.loss_blocks = last_in_warm_up;
    return s;
  });
}

/// kl: the warm-up sums over the last topk blocks of a row, with both softmaxes over all of them.
const msabench_plugin* kl_warm_up_sums_few(const msabench_host* host) {
  return with_stages(host, "kl_warm_up_sums_few", [](stages s) {
    s.loss_blocks = last_in_warm_up;
    return s;
  });
}

/// kl: gradients of the other sign.
const msabench_plugin* kl_backwards(const msabench_host* host) {
  return with_stages(host, "kl_backwards", [](stages s) {
    s.kl_difference = reversed_difference;
    return s;
  });
}

/// kl: the loss takes the logarithm of the student's weight.
const msabench_plugin* kl_log_of_weight(const msabench_host* host) {
  return with_stages(host, "kl_log_of_weight", [](stages s) {
    s.loss_term = term_of_weights;
    return s;
  });
}

/// kl: 1e-4 is added to the weights before their logarithm is taken.
const msabench_plugin* kl_epsilon(const msabench_host* host) {
  return with_stages(host, "kl_epsilon", [](stages s) {
    s.loss_term = term_with_epsilon;
    return s;
  });
}

/// kl: dq_idx of rows without keys is NaN.
const msabench_plugin* kl_empty_rows(const msabench_host* host) {
  return with_stages(host, "kl_empty_rows", [](stages s) {
    s.empty_row_gradient = not_a_number;
    return s;
  });
}

/// kl: dk_idx is rounded to bf16 after every addition.
const msabench_plugin* kl_short_dk(const msabench_host* host) {
  return with_stages(host, "kl_short_dk", [](stages s) {
    s.add_dk_idx = add_index_in_bf16;
    return s;
  });
}

}  // namespace msabench::faults

// SPDX-License-Identifier: Apache-2.0
// The core of kl: rows of scores against blocks of keys, what a row's weights come to, and gradients from its differences.
#pragma once

#include <cstdint>

#include "kernels/common/calls.h"
#include "kernels/cpu/tile.h"

namespace msabench::cpu {

using namespace kernels;

/// Addresses of `count` <= tile_keys rows of d elements: keys, or queries.
struct stored_rows {
  const char* const* at;
  msabench_dtype type;
  std::int32_t count, d;
};

/// For each of some tokens, to[t][rows][stride] = left[t] [rows][d] * keys^T. Whole vectors are written, so up to 15
/// elements behind the keys.
struct scored_tokens {
  const float* const* left;
  float* const* to;
  std::int32_t tokens, rows;
  std::int64_t stride;
};
void score_block(const stored_rows& keys, const scored_tokens& tokens, float* panel);

/// For each of some tokens, sums[t] [padded_columns(d)] += factors[t] [count] * keys.
struct weighted_tokens {
  const float* const* factors;
  float* const* sums;
  std::int32_t tokens;
};
void add_block(const stored_rows& keys, const weighted_tokens& tokens, float* panel);

/// sums [keys][padded_columns(d)] += factors^T rows: factors[i] [keys] are those of row i. `turned` holds
/// [tile_keys][panel_columns].
void add_rows(const stored_rows& rows, const float* const* factors, std::int32_t keys, float* turned, float* panel,
              float* sums);

/// A row's scores [heads][stride] of the teacher's heads and [count] of the student, which are changed, and the scales of
/// their base-2 exponents.
struct divergence_row {
  float *teacher, *student;
  std::int64_t stride, count;
  std::int32_t heads;
  float teacher_scale, student_scale;
};

/// differences [count] = P' - P; returns the sum of P (ln P - ln P'), where P is the mean of the heads' weights.
double compare_row(const divergence_row& row, float* differences);

/// Longest chain of additions in a normaliser, and rows whose products add_rows sums before it adds them.
std::int64_t normaliser_chain();
std::int64_t rows_of_a_step();

}  // namespace msabench::cpu

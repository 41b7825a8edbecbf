// SPDX-License-Identifier: Apache-2.0
// Right kernels that round elsewhere than naive does, and declare it: honest variants.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/common/declare.h"
#include "kernels/common/types.h"
#include "kernels/naive/stages.h"
#include "tests/plugins/fault.h"

namespace msabench::faults {
namespace {

using namespace naive;

float bf16_nearest(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
}
float bf16_truncated(float x) { return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xffff0000u); }

void (*declare)(msabench_numerics&) = nullptr;

/// naive with changed stages and a changed declaration of what attends over bf16.
const msabench_plugin* variant(const msabench_host* host, const char* name, void (*change)(stages&),
                               void (*declared)(msabench_numerics&)) {
  static stages changed;
  changed = exact_stages;
  change(changed);
  declare = declared;
  msabench_plugin* table = copy_of(host, name, changed);
  if (table == nullptr) return nullptr;
  table->query = [](const msabench_problem* problem, msabench_capability* out) -> msabench_status {
    if (kernels::is_attention(problem->op) && !kernels::same_type(problem->q, bf16_type)) return MSABENCH_UNSUPPORTED;
    const msabench_status status = exact().query(problem, out);
    if (status == MSABENCH_OK && kernels::is_attention(problem->op)) declare(out->numerics);
    return status;
  };
  return table;
}

template <float (*Round)(float), bool SumRounded>
void attend_with(const float* scores, float maximum, const tile& values, weighted_sum& sum) {
  exact_stages.attend_block(scores, maximum, values, sum);
  std::fill(sum.values, sum.values + values.d, 0.0f);
  float weights = 0;
  for (std::int32_t i = 0; i < values.count; ++i) {
    const float weight = Round(std::exp(scores[i] - maximum));
    weights += weight;
    for (std::int32_t c = 0; c < values.d; ++c)
      sum.values[c] += weight * values.rows[static_cast<std::int64_t>(i) * values.d + c];
  }
  if (SumRounded) sum.weight = weights;
}

float maximum_of_short_scores(const float* query, float scale, const tile& keys, float* scores) {
  exact_stages.block_maximum(query, scale, keys, scores);
  float maximum = -std::numeric_limits<float>::infinity();
  for (std::int32_t i = 0; i < keys.count; ++i) maximum = std::max(maximum, scores[i] = bf16_nearest(scores[i]));
  return maximum;
}

float maximum_of_prescaled(const float* query, float scale, const tile& keys, float* scores) {
  float scaled[256];
  for (std::int32_t c = 0; c < keys.d; ++c) scaled[c] = bf16_nearest(query[c] * scale);
  return exact_stages.block_maximum(scaled, 1, keys, scores);
}

void merge_short_partials(const weighted_sum& block, std::int32_t slot, std::int32_t slots, std::int32_t d,
                          weighted_sum& row) {
  const float weight = block.weight > 0 ? block.weight : 1;
  for (std::int32_t c = 0; c < d; ++c) block.values[c] = bf16_nearest(block.values[c] / weight) * weight;
  exact_stages.merge(block, slot, slots, d, row);
}

}  // namespace

/// P truncated to bf16, denominators of exact weights.
const msabench_plugin* truncates_weights(const msabench_host* host) {
  return variant(
      host, "truncates_weights", [](stages& s) { s.attend_block = attend_with<bf16_truncated, false>; },
      [](msabench_numerics& n) {
        n.p_operand = bf16_type;
        n.truncated |= 8;
      });
}

/// P to nearest in bf16, denominators of what was rounded.
const msabench_plugin* adds_rounded_weights(const msabench_host* host) {
  return variant(
      host, "adds_rounded_weights", [](stages& s) { s.attend_block = attend_with<bf16_nearest, true>; },
      [](msabench_numerics& n) {
        n.p_operand = bf16_type;
        n.lse_from_rounded_p = 1;
      });
}

/// Scores kept in bf16.
const msabench_plugin* stores_short_scores(const msabench_host* host) {
  return variant(
      host, "stores_short_scores", [](stages& s) { s.block_maximum = maximum_of_short_scores; },
      [](msabench_numerics& n) { n.score_store = bf16_type; });
}

/// q times the scale, rounded to bf16.
const msabench_plugin* prescales_query(const msabench_host* host) {
  return variant(
      host, "prescales_query", [](stages& s) { s.block_maximum = maximum_of_prescaled; },
      [](msabench_numerics& n) {
        n.operand = bf16_type;
        n.rounded_operands = 1;
      });
}

/// Partial results of blocks in bf16.
const msabench_plugin* stores_short_partials(const msabench_host* host) {
  return variant(
      host, "stores_short_partials", [](stages& s) { s.merge = merge_short_partials; },
      [](msabench_numerics& n) { n.partial_store = bf16_type; });
}

}  // namespace msabench::faults

// SPDX-License-Identifier: Apache-2.0
// Wrong results, each by one replaced stage of the naive kernels.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tests/plugins/fault.h"

namespace msabench::faults {
namespace {

using namespace naive;

constexpr float no_score = -std::numeric_limits<float>::infinity();

float maximum_without_a_key(const float* query, float scale, const tile& keys, float* scores) {
  const float maximum = exact_stages.block_maximum(query, scale, keys, scores);
  if (keys.slot != std::min(3, keys.slots - 1) || keys.count == 0) return maximum;
  scores[std::min(37, keys.count - 1)] = no_score;
  return *std::max_element(scores, scores + keys.count);
}

float maximum_without_the_heaviest_key(const float* query, float scale, const tile& keys, float* scores) {
  exact_stages.block_maximum(query, scale, keys, scores);
  if (keys.count == 0) return no_score;
  *std::max_element(scores, scores + keys.count) = no_score;
  return *std::max_element(scores, scores + keys.count);
}

/// To 4 significant bits, in the normal range of e4m3.
float e4m3_of(float value) {
  int exponent = 0;
  const float fraction = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, 4)), exponent - 4);
}

void attend_block_rounded_again(const float* scores, float maximum, const tile& values, weighted_sum& sum) {
  exact_stages.attend_block(scores, maximum, values, sum);  // of it only the weight stands
  std::fill(sum.values, sum.values + values.d, 0.0f);
  for (std::int32_t i = 0; i < values.count; ++i) {
    const float weight = std::exp(scores[i] - maximum);
    for (std::int32_t c = 0; c < values.d; ++c)
      sum.values[c] += weight * e4m3_of(values.rows[static_cast<std::int64_t>(i) * values.d + c]);
  }
}

}  // namespace

/// attend, dense: of every row's fourth block (the last one if it has fewer) key 37 (the last one if it sees fewer). score and
/// index: the same of every block.
const msabench_plugin* drop_key(const msabench_host* host) {
  return with_stages(host, "drop_key", [](stages s) {
    s.block_maximum = maximum_without_a_key;
    return s;
  });
}

/// attend, dense: of every block the key of the highest score.
const msabench_plugin* drop_heavy_key(const msabench_host* host) {
  return with_stages(host, "drop_heavy_key", [](stages s) {
    s.block_maximum = maximum_without_the_heaviest_key;
    return s;
  });
}

/// attend, dense: scaled values are rounded to e4m3 once more.
const msabench_plugin* rounds_again(const msabench_host* host) {
  return with_stages(host, "rounds_again", [](stages s) {
    s.attend_block = attend_block_rounded_again;
    return s;
  });
}

}  // namespace msabench::faults

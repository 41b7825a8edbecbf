// SPDX-License-Identifier: Apache-2.0
// combine gone wrong, each by one replaced stage of the naive kernels.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/plugins/fault.h"

namespace msabench::faults {
namespace {

using namespace naive;

constexpr float no_keys = -std::numeric_limits<float>::infinity();

float weights_without_the_lightest(const float* lse, std::int64_t count, float* weights, float& maximum) {
  const float sum = exact_stages.partial_weights(lse, count, weights, maximum);
  float* lightest = nullptr;
  for (std::int64_t p = 0; p < count; ++p)
    if (weights[p] > 0 && (lightest == nullptr || weights[p] < *lightest)) lightest = weights + p;
  if (lightest == nullptr) return sum;
  const float lost = *lightest;
  *lightest = 0;
  return sum - lost;
}

float weights_without_maximum(const float* lse, std::int64_t count, float* weights, float& maximum) {
  exact_stages.partial_weights(lse, count, weights, maximum);
  if (maximum == no_keys) return 0;
  float sum = 0;
  for (std::int64_t p = 0; p < count; ++p) sum += weights[p] = std::exp(lse[p]);
  maximum = 0;
  return sum;
}

void store_undivided(const weighted_sum& row, float maximum, const output_row& to) {
  for (std::int32_t c = 0; c < to.d; ++c) row.values[c] *= row.weight;
  exact_stages.store(row, maximum, to);
}

}  // namespace

/// combine: of every row the lightest part with keys.
const msabench_plugin* combine_forgets_part(const msabench_host* host) {
  return with_stages(host, "combine_forgets_part", [](stages s) {
    s.partial_weights = weights_without_the_lightest;
    return s;
  });
}

/// combine: the maximum is not subtracted before exp.
const msabench_plugin* combine_no_maximum(const msabench_host* host) {
  return with_stages(host, "combine_no_maximum", [](stages s) {
    s.partial_weights = weights_without_maximum;
    return s;
  });
}

/// combine: the sum is not divided by the weights. (attend too, which shares the stage.)
const msabench_plugin* combine_undivided(const msabench_host* host) {
  return with_stages(host, "combine_undivided", [](stages s) {
    s.store = store_undivided;
    return s;
  });
}

}  // namespace msabench::faults

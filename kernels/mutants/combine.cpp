// SPDX-License-Identifier: Apache-2.0
// combine gone wrong.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/mutants/mutant.h"

namespace msabench::mutants {
namespace {

constexpr float no_keys = -std::numeric_limits<float>::infinity();

float weights_in_base2(const float* lse, std::int64_t count, float* weights, float& maximum) {
  exact_stages.partial_weights(lse, count, weights, maximum);
  float sum = 0;
  for (std::int64_t p = 0; p < count; ++p) sum += weights[p] = lse[p] == no_keys ? 0 : std::exp2(lse[p] - maximum);
  return sum;
}

float weights_as_if_all_had_keys(const float* lse, std::int64_t count, float* weights, float& maximum) {
  maximum = count > 0 ? *std::max_element(lse, lse + count) : no_keys;
  float sum = 0;
  for (std::int64_t p = 0; p < count; ++p) sum += weights[p] = std::exp(lse[p] - maximum);
  if (maximum == no_keys) maximum = 0;
  return sum;
}

void add_whatever_the_weight(float weight, const float* values, std::int32_t d, float* row) {
  for (std::int32_t c = 0; c < d; ++c) row[c] += weight * values[c];
}

/// The last part counts `Times` times.
template <int Times>
float weights_with_last(const float* lse, std::int64_t count, float* weights, float& maximum) {
  const float sum = exact_stages.partial_weights(lse, count, weights, maximum);
  if (count < 2) return sum;
  const float once = weights[count - 1];
  weights[count - 1] = Times * once;
  return sum + (Times - 1) * once;
}

constexpr mutant mutants[] = {
    {"COMB-1.a", "log-sum-exps taken for logarithms to base 2", [](stages& s) { s.partial_weights = weights_in_base2; },
     nullptr},
    {"COMB-2.a", "exp(-infinity - -infinity) where no part has keys",
     [](stages& s) { s.partial_weights = weights_as_if_all_had_keys; }, nullptr},
    {"COMB-2.b", "what a part without keys holds is multiplied by 0",
     [](stages& s) { s.add_partial = add_whatever_the_weight; }, nullptr},
    {"COMB-3.a", "the last part is dropped", [](stages& s) { s.partial_weights = weights_with_last<0>; }, nullptr},
    {"COMB-3.b", "the last part is counted twice", [](stages& s) { s.partial_weights = weights_with_last<2>; },
     nullptr},
};

}  // namespace

std::span<const mutant> combine_mutants() { return mutants; }

}  // namespace msabench::mutants

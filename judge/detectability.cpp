// SPDX-License-Identifier: Apache-2.0
#include "judge/detectability.h"

#include <algorithm>

namespace msabench::judge {

std::vector<std::size_t> sampled(std::size_t count) {
  std::vector<std::size_t> at;
  const std::size_t samples = std::min(count, most_perturbed_rows);
  for (std::size_t i = 0; i < samples; ++i) at.push_back(samples == 1 ? 0 : i * (count - 1) / (samples - 1));
  return at;
}

detectability weakest_of(std::span<const perturbation> targets, const std::function<effect(perturbation)>& effect_of) {
  detectability d;
  for (const auto fault : targets) {
    effect seen = effect_of(fault);
    seen.ratio = std::min(seen.ratio, unbounded_effect);
    d.by_fault.emplace_back(name(fault), seen.ratio);
    if (!d.judged || seen.ratio < d.value) {
      d.value = seen.ratio;
      d.weakest_fault = name(fault);
      d.by_check = seen.by_check;
    }
    d.judged = true;
  }
  return d;
}

}  // namespace msabench::judge

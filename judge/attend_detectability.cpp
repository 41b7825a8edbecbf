// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "judge/attend_expectation.h"
#include "judge/attend_perturbation.h"
#include "judge/detectability.h"

namespace msabench::judge {

detectability attend_expectation::measure() const {
  // One query head per KV head, another one from row to row.
  std::vector<const reference::attend_row*> sample;
  std::vector<std::unique_ptr<perturbable_row>> rows;
  for (const std::size_t at : rows_to_perturb(map_, rows_, what_.agreed))
    for (std::int64_t kv_head = 0; kv_head < what_.agreed.hkv; ++kv_head) {
      const std::int64_t group = what_.agreed.group();
      sample.push_back(&want(at, kv_head * group + static_cast<std::int64_t>(at) % group));
      rows.push_back(std::make_unique<perturbable_row>(in_, map_, *sample.back()));
    }
  const bool with_lse = what_.delivers.lse != lse_form::none;
  return weakest_of(what_.targets, [&](perturbation fault) {
    effect strongest;
    for (std::size_t i = 0; i < rows.size() && strongest.ratio < unbounded_effect; ++i) {
      const auto perturbed = rows[i]->apply(fault);
      if (!perturbed) continue;
      std::string which;
      const double ratio = gauge_.worst_ratio(*sample[i], perturbed->out, perturbed->lse, with_lse, &which);
      if (ratio > strongest.ratio) strongest = {ratio, which};
    }
    return strongest;
  });
}

}  // namespace msabench::judge

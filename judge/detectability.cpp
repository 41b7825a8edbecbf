// SPDX-License-Identifier: Apache-2.0
#include "judge/detectability.h"

#include <algorithm>
#include <set>

namespace msabench::judge {

namespace {

void take_evenly(std::set<std::size_t>& taken, const std::vector<std::size_t>& from, std::size_t most) {
  const std::size_t count = std::min(from.size(), most);
  for (std::size_t i = 0; i < count; ++i) taken.insert(from[count == 1 ? 0 : i * (from.size() - 1) / (count - 1)]);
}

// How many of the fixed faults find what they need on this row.
int opportunities(const reference::row_map& map, std::int64_t row, const problem& p) {
  const auto& place = map[row];
  const std::int64_t blocks = map.visible_blocks(row, p.block), next = place.position + 1;
  const bool has_neighbour = row > 0 && map[row - 1].sequence == place.sequence;
  return (blocks > 0) + (blocks > 1) + (blocks > p.topk) + (blocks > 0 && next < place.kv_len && next % p.block != 0) +
         (blocks > 0 && has_neighbour);
}

}  // namespace

std::vector<std::size_t> rows_to_perturb(const reference::row_map& map, std::span<const std::int64_t> rows,
                                         const problem& p) {
  std::vector<std::size_t> all, best;
  int most = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    all.push_back(i);
    const int here = opportunities(map, rows[i], p);
    if (here > most) best.clear();
    most = std::max(most, here);
    if (here == most) best.push_back(i);
  }
  std::set<std::size_t> taken;
  take_evenly(taken, all, all.size() <= most_perturbed_rows ? all.size() : most_perturbed_rows / 2);
  take_evenly(taken, best, most_perturbed_rows - taken.size());
  return {taken.begin(), taken.end()};
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

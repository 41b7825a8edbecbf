// SPDX-License-Identifier: Apache-2.0
#include "judge/detectability.h"

#include <algorithm>
#include <iterator>
#include <set>

namespace msabench::judge {

namespace {

// Up to `most` of the positions that are not taken yet: the first, the last and evenly between.
void take_evenly(std::set<std::size_t>& taken, std::vector<std::size_t> from, std::size_t most) {
  std::erase_if(from, [&](std::size_t at) { return taken.contains(at); });
  const std::size_t count = std::min({from.size(), most, most_perturbed_rows - taken.size()});
  for (std::size_t i = 0; i < count; ++i) taken.insert(from[count == 1 ? 0 : i * (from.size() - 1) / (count - 1)]);
}

// Positions of the rows on which a kind of fault can show at all.
struct opportunities {
  std::vector<std::size_t> any;        // a key
  std::vector<std::size_t> sparse;     // a visible block that is not selected
  std::vector<std::size_t> neighbour;  // the same, and another row of the sequence before it
  std::vector<std::size_t> next_key;   // a key behind its own in the same block, fewest keys first
};

opportunities look(const reference::row_map& map, std::span<const std::int64_t> rows, const problem& p) {
  opportunities o;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& place = map[rows[i]];
    const std::int64_t blocks = map.visible_blocks(rows[i], p.block), next = place.position + 1;
    if (blocks == 0) continue;
    o.any.push_back(i);
    if (next < place.kv_len && next % p.block != 0) o.next_key.push_back(i);
    if (blocks <= p.topk) continue;
    o.sparse.push_back(i);
    if (rows[i] > 0 && map[rows[i] - 1].sequence == place.sequence) o.neighbour.push_back(i);
  }
  std::ranges::stable_sort(o.next_key, {}, [&](std::size_t i) { return map[rows[i]].position; });
  return o;
}

}  // namespace

std::vector<std::size_t> rows_to_perturb(const reference::row_map& map, std::span<const std::int64_t> rows,
                                         const problem& p) {
  const opportunities o = look(map, rows, p);
  const auto next_keys = o.next_key.begin() + std::min<std::ptrdiff_t>(3, std::ssize(o.next_key));
  const kind_of_position kinds[] = {
      {o.any, 2}, {o.sparse, 2}, {{o.next_key.begin(), next_keys}, 3}, {o.neighbour, 1}, {o.sparse}};
  return positions_to_perturb(kinds);
}

std::vector<std::size_t> positions_to_perturb(std::span<const kind_of_position> kinds) {
  std::set<std::size_t> taken;
  for (const auto& kind : kinds) take_evenly(taken, kind.positions, kind.most);
  if (!kinds.empty()) take_evenly(taken, kinds.front().positions, most_perturbed_rows);
  return {taken.begin(), taken.end()};
}

std::vector<std::size_t> rows_with_hidden_keys(const reference::row_map& map, std::span<const std::int64_t> rows,
                                               const problem& p) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& place = map[rows[i]];
    if (place.position >= 0 && place.position + 1 < place.kv_len && (place.position + 1) % p.block != 0)
      found.push_back(i);
  }
  std::ranges::stable_sort(found, {}, [&](std::size_t i) { return map[rows[i]].position % p.block; });
  if (found.size() > most_perturbed_rows) found.resize(most_perturbed_rows);
  return found;
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

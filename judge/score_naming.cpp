// SPDX-License-Identifier: Apache-2.0
// What explains a wrong score, and which declaration would have allowed it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "judge/cure.h"
#include "judge/score_expectation.h"

namespace msabench::judge {
namespace {

// Near enough to be the same number computed in another precision.
bool agrees(double got, double want, const judged_score& wrong) {
  if (!std::isfinite(want)) return false;
  return std::abs(got - want) <= std::max(wrong.hi - wrong.want, wrong.want - wrong.lo) + 1e-6 * std::abs(want);
}

std::string key_text(std::int64_t key, std::int64_t block, std::int64_t block_size) {
  return fmt::format("key {} (block {}, offset {})", key, block, key - block * block_size);
}

constexpr cure_search::store_field store_fields[] = {
    {"score_store", &numerics::score_store, truncates_score},
    {"score_acc", &numerics::score_acc, 0},
};

}  // namespace

std::string name_score_fault(const reference::score_inputs& in, const judged_score& wrong) {
  if (std::isnan(wrong.got) || !std::isfinite(wrong.want)) return {};
  const index_probe probe(in);
  auto seen = probe.keys(wrong.row, wrong.head, wrong.block, false);
  if (wrong.got == -std::numeric_limits<double>::infinity())
    return seen.size() == 1 ? fmt::format("{} left out", key_text(seen[0].key, wrong.block, in.p.block))
                            : fmt::format("all {} visible keys of block {} left out", seen.size(), wrong.block);
  if (std::isinf(wrong.got)) return {};
  const double value = largest_score(seen), unit = wrong.want == 0 || value == 0 ? 1 : wrong.want / value;
  if (wrong.got < wrong.want) {
    const auto best = std::ranges::find(seen, value, &key_score::score);
    const std::int64_t key = best->key;
    seen.erase(best);
    if (agrees(wrong.got, unit * largest_score(seen), wrong))
      return fmt::format("{} left out", key_text(key, wrong.block, in.p.block));
  }
  const auto place = reference::place_of(in.cu_seqlens_q, in.kv_lens, wrong.row);
  for (const auto& k : probe.keys(wrong.row, wrong.head, wrong.block, true))
    if (k.key > place.position && agrees(wrong.got, unit * k.score, wrong))
      return fmt::format("{} counted, which lies past the row's position {}", key_text(k.key, wrong.block, in.p.block),
                         place.position);
  const double scale = index_scale_of(in.p);
  if (scale != 1 && agrees(wrong.got * scale, wrong.want, wrong)) return "index_scale left out";
  if (wrong.got == 0 && wrong.hi < 0) return "a negative score emitted as 0";
  return {};
}

std::string find_score_cure(const subject& what, const reference::score_inputs& in,
                            std::span<const judged_score> failing) {
  const auto passes = [&](const numerics& n) {
    const auto model = interval_model_of(what.agreed, what.delivers, n);
    return std::ranges::all_of(failing, [&](judged_score s) {
      const auto block = reference::score_block(in, s.row, s.head, s.block, model);
      s.lo = std::min(model.unit * block.lo, model.unit * block.hi);
      s.hi = std::max(model.unit * block.lo, model.unit * block.hi);
      return !std::isnan(s.got) && s.ratio() <= 1;
    });
  };
  const cure_search search(what, passes);
  const roundoffs r = index_roundoffs(what.agreed, what.declared);
  std::string cure = search.stores(store_fields);
  // A longer chain admits less than rounded operands.
  if (cure.empty())
    cure = search.chain(&numerics::chain_score, "chain_score", r.kappa_s, std::int64_t{what.agreed.di} + 2);
  if (cure.empty()) cure = search.operands(what.agreed.q_idx);
  return cure;
}

}  // namespace msabench::judge

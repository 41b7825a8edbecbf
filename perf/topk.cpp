// SPDX-License-Identifier: Apache-2.0
#include "perf/topk.h"

#include "core/operator.h"
#include "perf/clocks.h"

namespace msabench {

std::vector<perf_topk> topk_rows(const std::vector<perf_point>& points, int implementations) {
  std::vector<perf_topk> rows;
  for (const auto& p : points)
    for (int i = 0; p.topk && i < implementations; ++i) {
      perf_topk row{p.phase, p.context, p.query_tokens, *p.topk, i, {}, {}, {}, {}, true};
      const perf_item *score = nullptr, *select = nullptr, *index = nullptr;
      const auto take = [&](const perf_item& item, const perf_item*& as, std::optional<double>& us) {
        as = &item;
        us = item.time_us.median;
        row.verified = row.verified && item.state == item_state::measured;
      };
      for (const auto& item : p.items) {
        if (item.implementation != i || !item.figures) continue;
        if (item.operation == name(op::score)) take(item, score, row.score_us);
        if (item.operation == name(op::select)) take(item, select, row.select_us);
        if (item.operation == name(op::index)) take(item, index, row.index_us);
      }
      if (!score && !select && !index) continue;
      if (score && select && index && clocks_apart(score->timing, index->timing).empty() &&
          clocks_apart(select->timing, index->timing).empty())
        row.split_over_fused = (*row.score_us + *row.select_us) / *row.index_us;
      rows.push_back(std::move(row));
    }
  return rows;
}

}  // namespace msabench

// SPDX-License-Identifier: Apache-2.0
#include "reference/select.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "reference/parallel.h"

namespace msabench::reference {
namespace {

void require_valid(std::int64_t topk, std::int64_t local_blocks, std::int64_t init_blocks) {
  if (topk < 1 || local_blocks < 0 || init_blocks < 0 || init_blocks + local_blocks > topk)
    throw suite_error(fmt::format("topk {} with {} local and {} initial blocks is no valid problem", topk, local_blocks,
                                  init_blocks));
}

}  // namespace

bool forced(std::int64_t b, std::int64_t own, std::int64_t local_blocks, std::int64_t init_blocks) {
  return b < init_blocks || b > own - local_blocks;
}

std::vector<std::int32_t> select_row(std::span<const double> scores, std::int64_t visible, std::int64_t topk,
                                     std::int64_t local_blocks, std::int64_t init_blocks) {
  require_valid(topk, local_blocks, init_blocks);
  if (visible < 0 || visible > static_cast<std::int64_t>(scores.size()))
    throw suite_error(fmt::format("{} visible blocks, but {} scores", visible, scores.size()));

  std::vector<std::int32_t> chosen, rest;
  for (std::int64_t b = 0; b < visible; ++b) {
    const bool taken = visible <= topk || forced(b, visible - 1, local_blocks, init_blocks);
    (taken ? chosen : rest).push_back(static_cast<std::int32_t>(b));
  }
  if (visible > topk) {
    const auto rank = [&](std::int32_t b) {
      const double score = scores[static_cast<std::size_t>(b)];
      return std::isnan(score) ? -std::numeric_limits<double>::infinity() : score;
    };
    const auto better = [&](std::int32_t a, std::int32_t b) {
      return rank(a) > rank(b) || (rank(a) == rank(b) && a < b);
    };
    const auto wanted = rest.begin() + (topk - static_cast<std::int64_t>(chosen.size()));
    std::nth_element(rest.begin(), wanted, rest.end(), better);
    chosen.insert(chosen.end(), rest.begin(), wanted);
    std::ranges::sort(chosen);
  }
  chosen.resize(static_cast<std::size_t>(topk), -1);
  return chosen;
}

std::vector<std::int32_t> select(const select_inputs& in, std::span<const std::int64_t> rows) {
  const problem& p = in.p;
  require_valid(p.topk, p.local_blocks, p.init_blocks);
  const row_map map(in.cu_seqlens_q, in.kv_lens);
  const auto heads = static_cast<std::size_t>(p.hkv), topk = static_cast<std::size_t>(p.topk);
  std::vector<std::int32_t> ids(rows.size() * heads * topk);

  const auto units = static_cast<std::int64_t>(rows.size() * heads);
  parallel_for<std::vector<double>>(units, units * in.scores.desc.shape[2], [&](std::int64_t unit, auto& scores) {
    const std::int64_t row = rows[static_cast<std::size_t>(unit) / heads], head = unit % p.hkv;
    const std::int64_t visible = map.visible_blocks(row, p.block);
    if (visible > in.scores.desc.shape[2])
      throw suite_error(fmt::format("row {} sees {} blocks, but has {} scores", row, visible, in.scores.desc.shape[2]));
    scores.resize(static_cast<std::size_t>(visible));
    widen(in.scores.data, in.scores.desc.type, in.scores.offset(head, row), visible, scores.data());
    const auto chosen = select_row(scores, visible, p.topk, p.local_blocks, p.init_blocks);
    std::ranges::copy(chosen, ids.begin() + unit * p.topk);
  });
  return ids;
}

}  // namespace msabench::reference

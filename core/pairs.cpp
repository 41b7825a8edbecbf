// SPDX-License-Identifier: Apache-2.0
#include "core/pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/units.h"

namespace msabench {

namespace {

double real(std::int64_t x) { return static_cast<double>(x); }

std::int64_t live(const sequence& s) { return std::min(s.q_len, s.kv_len); }

void require_lengths(batch_lengths batch) {
  for (const auto& s : batch)
    if (s.q_len < 0 || s.q_len > max_size || s.kv_len < 0 || s.kv_len > max_size)
      throw suite_error(fmt::format("work model: sequence {}/{} outside 0 .. {}", s.q_len, s.kv_len, max_size));
}

void require_rule(const selection_rule& r) {
  if (r.block < 1 || r.block > max_size || r.topk < 1 || r.topk > max_size || r.local_blocks < 0 || r.init_blocks < 0 ||
      r.local_blocks + r.init_blocks > r.topk)
    throw suite_error(fmt::format("work model: block {}, topk {}, local {}, initial {} select nothing", r.block, r.topk,
                                  r.local_blocks, r.init_blocks));
}

// Sums over the positions 0 .. n - 1; a chunk is the difference of two of them.
double triangle(std::int64_t n) { return real(n) * (real(n) + 1) / 2; }

double blocks_below(std::int64_t n, std::int64_t block) {
  const std::int64_t whole = n / block;
  return real(block) * triangle(whole) + real(n % block) * real(whole + 1);
}

// Of pos % block + 1, the visible keys of the own block.
double own_keys_below(std::int64_t n, std::int64_t block) {
  return real(n / block) * triangle(block) + triangle(n % block);
}

template <class Below>
double over_rows(batch_lengths batch, Below below) {
  require_lengths(batch);
  double sum = 0;
  for (const auto& s : batch) sum += below(s.kv_len) - below(s.kv_len - live(s));
  return sum;
}

std::vector<sequence> with_choice(batch_lengths batch, const selection_rule& rule) {
  std::vector<sequence> rows;
  for (const auto& s : batch) rows.push_back(rows_with_choice(s, rule));
  return rows;
}

struct block_bounds {
  std::int64_t least = 0, most = 0;
};

// Of one sequence with live rows, whose own blocks run from first to last.
block_bounds distinct_blocks(std::int64_t rows, std::int64_t first, std::int64_t last, const selection_rule& r,
                             std::int64_t selections) {
  // Own blocks are forced one after the other; what the first row needs serves all later ones.
  const std::int64_t least =
      r.local_blocks >= 1 ? std::min(r.topk, first + 1) + last - first : std::min(r.topk, last + 1);

  const std::int64_t forced_ends = std::min(r.init_blocks, last + 1);
  const std::int64_t forced_run =
      r.local_blocks >= 1 ? last - std::max(forced_ends, std::max<std::int64_t>(0, first - r.local_blocks + 1)) + 1 : 0;
  const std::int64_t forced = forced_ends + std::max<std::int64_t>(0, forced_run);
  const std::int64_t always = r.local_blocks + r.init_blocks;
  // A row that sees no more than topk blocks selects them all, and later rows can each add their own block.
  if (first < r.topk) return {least, r.topk > r.init_blocks ? last + 1 : forced};
  const std::int64_t rest = last + 1 - forced;
  // Either factor may cover the rest alone; the cut keeps their product small.
  const std::int64_t chosen = std::min(rest, selections * rows) * std::min(rest, r.topk - always);
  return {least, forced + std::min(rest, chosen)};
}

}  // namespace

std::int64_t query_rows(batch_lengths batch) {
  require_lengths(batch);
  std::int64_t sum = 0;
  for (const auto& s : batch) sum += s.q_len;
  return sum;
}

std::int64_t live_rows(batch_lengths batch) {
  require_lengths(batch);
  std::int64_t sum = 0;
  for (const auto& s : batch) sum += live(s);
  return sum;
}

std::int64_t cached_keys(batch_lengths batch) {
  require_lengths(batch);
  std::int64_t sum = 0;
  for (const auto& s : batch) sum += s.kv_len;
  return sum;
}

std::int64_t visible_keys(batch_lengths batch) {
  require_lengths(batch);
  std::int64_t sum = 0;
  for (const auto& s : batch) sum += s.q_len > 0 ? s.kv_len : 0;
  return sum;
}

std::int64_t distinct_positions(batch_lengths batch) {
  require_lengths(batch);
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  for (const auto& s : batch)
    if (live(s) > 0) ranges.emplace_back(s.kv_len - live(s), s.kv_len);
  std::sort(ranges.begin(), ranges.end());
  std::int64_t count = 0, seen = 0;
  for (const auto& [from, to] : ranges) {
    count += std::max<std::int64_t>(0, to - std::max(from, seen));
    seen = std::max(seen, to);
  }
  return count;
}

double causal_pairs(batch_lengths batch) { return over_rows(batch, triangle); }

double visible_blocks(batch_lengths batch, std::int64_t block) {
  require_rule({block, 1});
  return over_rows(batch, [&](std::int64_t n) { return blocks_below(n, block); });
}

double selected_blocks(batch_lengths batch, std::int64_t block, std::int64_t topk) {
  require_rule({block, topk});
  return over_rows(batch, [&](std::int64_t n) {
    const std::int64_t all = std::min(n, topk * block);
    return blocks_below(all, block) + real(n - all) * real(topk);
  });
}

count_bounds selected_pairs(batch_lengths batch, const selection_rule& rule) {
  require_rule(rule);
  const std::int64_t everything = rule.topk * rule.block;
  const double with_own = over_rows(batch, [&](std::int64_t n) {
    if (n <= everything) return triangle(n);
    return triangle(everything) + real(n - everything) * real(everything - rule.block) +
           own_keys_below(n - everything, rule.block);
  });
  if (rule.local_blocks >= 1) return {with_own, with_own};
  const double without_own = over_rows(batch, [&](std::int64_t n) {
    const std::int64_t all = std::min(n, everything);
    return triangle(all) + real(n - all) * real(everything);
  });
  return {with_own, without_own};
}

sequence rows_with_choice(const sequence& s, const selection_rule& rule) {
  return {std::clamp<std::int64_t>(s.kv_len - rule.topk * rule.block, 0, s.q_len), s.kv_len};
}

double forced_pairs(batch_lengths batch, const selection_rule& rule) {
  require_rule(rule);
  const std::int64_t always = rule.local_blocks + rule.init_blocks;
  if (always == 0) return 0;
  const auto rows = with_choice(batch, rule);
  return selected_pairs(rows, {rule.block, always, rule.local_blocks, rule.init_blocks}).most;
}

double scored_keys(batch_lengths batch, const selection_rule& rule) {
  require_rule(rule);
  require_lengths(batch);
  double sum = 0;
  for (const auto& s : batch) {
    if (rows_with_choice(s, rule).q_len == 0) continue;
    const std::int64_t own = (s.kv_len - 1) / rule.block;
    const std::int64_t end = rule.local_blocks >= 1 ? (own - rule.local_blocks + 1) * rule.block : s.kv_len;
    sum += real(end - rule.init_blocks * rule.block);
  }
  return sum;
}

count_bounds distinct_selected_keys(batch_lengths batch, const selection_rule& rule, std::int64_t selections) {
  require_rule(rule);
  require_lengths(batch);
  if (selections < 1 || selections > max_size)
    throw suite_error(fmt::format("work model: {} selections a row", selections));
  count_bounds sum;
  for (const auto& s : batch) {
    const std::int64_t rows = live(s);
    if (rows == 0) continue;
    const std::int64_t first = (s.kv_len - rows) / rule.block, last = (s.kv_len - 1) / rule.block;
    const block_bounds blocks = distinct_blocks(rows, first, last, rule, selections);
    // The last own block ends with the sequence; every other block is seen whole by the last row that selects it, unless
    // that row stands in it.
    const std::int64_t missing = (last + 1) * rule.block - s.kv_len;
    const bool own_is_chosen = rule.local_blocks >= 1 || rule.init_blocks > last;
    const bool least_has_own = own_is_chosen || blocks.least == last + 1 || first == last;
    const bool most_has_own = own_is_chosen || blocks.most == last + 1;
    sum.least += real(blocks.least * rule.block - (least_has_own ? missing : 0));
    sum.most += real(blocks.most * rule.block - (most_has_own ? missing : 0));
  }
  return sum;
}

double patches(std::span<const grid> items) {
  double sum = 0;
  for (const auto& g : items) {
    if (g.t < 1 || g.h < 1 || g.w < 1 || std::max({g.t, g.h, g.w}) > max_size)
      throw suite_error(fmt::format("work model: item {} x {} x {}", g.t, g.h, g.w));
    sum += real(g.t) * real(g.h) * real(g.w);
  }
  return sum;
}

double segment_pairs(std::span<const grid> items, std::int64_t window) {
  patches(items);  // refuses what has no patches
  if (window < 0) throw suite_error(fmt::format("work model: window {}", window));
  double sum = 0;
  for (const auto& g : items) {
    const std::int64_t length = window == 0 ? g.t : std::min(g.t, window);
    const double area = real(g.h) * real(g.w), whole = real(length) * area, rest = real(g.t % length) * area;
    sum += real(g.t / length) * whole * whole + rest * rest;
  }
  return sum;
}

}  // namespace msabench

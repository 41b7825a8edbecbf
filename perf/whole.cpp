// SPDX-License-Identifier: Apache-2.0
#include "perf/whole.h"

#include <algorithm>
#include <deque>
#include <tuple>
#include <utility>

#include "core/operator.h"
#include "perf/clocks.h"
#include "perf/whole_estimate.h"

namespace msabench {
namespace {

std::vector<whole_chunk> chunks_of_one(std::int64_t context, std::int64_t chunk) {
  std::vector<whole_chunk> chunks;
  for (std::int64_t from = 0; from < context; from += chunk) {
    const std::int64_t to = std::min(from + chunk, context);
    chunks.push_back({to - from, to});
  }
  return chunks;
}

// An item of the chunk that has a time; null: it has none.
const perf_item* find(const perf_run& run, const whole_chunk& c, std::string_view operation, int implementation) {
  for (const auto& p : run.points) {
    if (p.context != c.context || p.query_tokens != c.query_tokens) continue;
    for (const auto& i : p.items)
      if (i.operation == operation && i.implementation == implementation && i.figures) return &i;
  }
  return nullptr;
}

perf_whole sum_of(const perf_run& run, std::span<const whole_chunk> chunks, std::string_view operation,
                  int implementation) {
  perf_whole w;
  w.operation = operation;
  w.implementation = implementation;
  w.chunks = static_cast<std::int64_t>(chunks.size());
  w.verified = true;
  double time_us = 0, in_a_row_us = 0;
  std::int64_t in_a_row = 0;
  for (const auto& c : chunks) {
    const perf_item* item = find(run, c, operation, implementation);
    if (!item) continue;
    ++w.measured;
    time_us += item->time_us.median;
    w.useful_flops += item->work.useful_flops;
    w.verified = w.verified && item->state == item_state::measured;
    if (const auto us = item->in_a_row.time_us()) {
      ++in_a_row;
      in_a_row_us += *us;
    }
  }
  w.verified = w.verified && w.measured > 0;
  if (w.partial()) return w;
  w.time_us = time_us;
  if (in_a_row == w.chunks) w.back_to_back_us = in_a_row_us;
  return w;
}

bool at_one_clock(const perf_item& a, const perf_item& b) { return clocks_apart(a.timing, b.timing).empty(); }

bool at_one_clock(const perf_run& run, std::span<const whole_chunk> chunks, const perf_whole& a, const perf_whole& b) {
  return std::ranges::all_of(chunks, [&](const whole_chunk& c) {
    return at_one_clock(*find(run, c, a.operation, a.implementation), *find(run, c, b.operation, b.implementation));
  });
}

// Nothing where no chunk has times of both, at clocks that can be compared.
std::optional<perf_common_chunks> common_of(const perf_run& run, std::span<const whole_chunk> chunks,
                                            const perf_whole& w, const perf_whole& dense) {
  perf_common_chunks both;
  double in_a_row_us = 0, dense_in_a_row_us = 0;
  bool all_in_a_row = true;
  for (const auto& c : chunks) {
    const perf_item *own = find(run, c, w.operation, w.implementation),
                    *other = find(run, c, dense.operation, dense.implementation);
    if (!own || !other || !at_one_clock(*own, *other)) continue;
    both.contexts.push_back(c.context);
    both.time_us += own->time_us.median;
    both.dense_us += other->time_us.median;
    const auto us = own->in_a_row.time_us(), dense_us = other->in_a_row.time_us();
    all_in_a_row = all_in_a_row && us && dense_us;
    in_a_row_us += us.value_or(0);
    dense_in_a_row_us += dense_us.value_or(0);
  }
  if (both.contexts.empty()) return std::nullopt;
  if (all_in_a_row) {
    both.back_to_back_us = in_a_row_us;
    both.dense_back_to_back_us = dense_in_a_row_us;
  }
  return both;
}

// Of several dense that with which most chunks can be compared, and of these the fastest.
std::optional<perf_common_chunks> common_of(const perf_run& run, std::span<const whole_chunk> chunks,
                                            const perf_whole& w, std::span<const perf_whole> all,
                                            std::span<const std::string> labels) {
  std::optional<perf_common_chunks> best;
  const auto rank = [](const perf_common_chunks& c) { return std::pair(-std::ssize(c.contexts), c.dense_us); };
  for (const auto& dense : all) {
    if (dense.operation != name(op::dense)) continue;
    auto both = common_of(run, chunks, w, dense);
    if (!both || (best && rank(*best) <= rank(*both))) continue;
    both->dense = labels[static_cast<std::size_t>(dense.implementation)];
    best = std::move(both);
  }
  return best;
}

}  // namespace

std::vector<whole_chunk> chunks_of(std::span<const std::int64_t> contexts, std::int64_t chunk) {
  std::vector<whole_chunk> all;
  for (const std::int64_t n : contexts)
    for (const auto& c : chunks_of_one(n, chunk)) all.push_back(c);
  std::ranges::sort(all, {}, [](const whole_chunk& c) { return std::tuple(c.context, c.query_tokens); });
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

std::vector<std::size_t> spread_order(std::size_t count) {
  if (count == 0) return {};
  std::vector<std::size_t> order = {0};
  if (count > 1) order.push_back(count - 1);
  std::deque<std::pair<std::size_t, std::size_t>> between = {{0, count - 1}};
  while (!between.empty()) {
    const auto [from, to] = between.front();
    between.pop_front();
    if (to - from < 2) continue;
    const std::size_t middle = from + (to - from) / 2;
    order.push_back(middle);
    between.emplace_back(from, middle);
    between.emplace_back(middle, to);
  }
  return order;
}

std::vector<perf_whole> wholes_of(const perf_run& run, std::span<const std::int64_t> contexts, std::int64_t chunk,
                                  std::int64_t batch, std::span<const std::string> labels) {
  std::vector<perf_whole> all;
  for (const std::int64_t n : contexts) {
    const auto chunks = chunks_of_one(n, chunk);
    std::vector<perf_whole> here;
    for (const op o : {op::msa, op::dense})
      for (int i = 0; i < static_cast<int>(labels.size()); ++i) here.push_back(sum_of(run, chunks, name(o), i));
    const perf_whole* dense = nullptr;
    for (const auto& w : here)
      if (w.operation == name(op::dense) && w.time_us && (!dense || *w.time_us < *dense->time_us)) dense = &w;
    for (perf_whole& w : here) {
      w.context = n;
      w.chunk = chunk;
      w.batch = batch;
      if (!dense || !w.time_us) {
        if (w.operation != name(op::dense)) w.common = common_of(run, chunks, w, here, labels);
        continue;
      }
      if (!at_one_clock(run, chunks, w, *dense)) continue;
      w.gain_over_dense = *dense->time_us / *w.time_us;
      w.dense = labels[static_cast<std::size_t>(dense->implementation)];
    }
    estimate_wholes(run, chunks, here, labels);
    all.insert(all.end(), here.begin(), here.end());
  }
  return all;
}

}  // namespace msabench

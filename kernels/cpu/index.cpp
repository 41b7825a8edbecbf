// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/common/check.h"
#include "kernels/cpu/best_blocks.h"
#include "kernels/cpu/operators.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scoring.h"

namespace msabench::cpu {
namespace {

struct sizes {
  scoring_sizes scoring;
  std::int64_t capacity;  // blocks of a row
  std::int64_t batch;
  std::int64_t parts, tiles;  // parts of a row that are ranked apart, of so many tiles at the most; 0 = none
};

sizes sizes_of(const msabench_problem& p, int threads) {
  sizes s{scoring_sizes_of(p), block_capacity(p), p.batch, 0, 0};
  const std::int64_t tiles = most_tiles(p.total_q, p.batch, s.scoring.tile_tokens);
  if (threads == 1 || tiles >= enough_tasks(threads) || tiles == 0) return s;
  // Few rows leave threads idle unless their blocks are shared out. 32 MiB are kept at most.
  const std::int64_t parts = std::min(s.scoring.strips, ceil_div(2 * enough_tasks(threads), tiles));
  const double kept = static_cast<double>(tiles * parts) * static_cast<double>(s.scoring.rows) *
                      static_cast<double>(s.capacity) * sizeof(scored_block);
  if (parts > 1 && kept < 32.0 * (1 << 20)) {
    s.parts = parts;
    s.tiles = tiles;
  }
  return s;
}

struct ranking {
  scored_block* chosen;  // [rows][capacity]
  std::int32_t* counts;  // [rows]
};

ranking take_ranking(carver& memory, const sizes& s, double copies) {
  const double rows = static_cast<double>(s.scoring.rows) * copies;
  return {memory.take<scored_block>(rows * static_cast<double>(s.capacity)), memory.take<std::int32_t>(rows)};
}

struct scratch {
  scoring_scratch scoring;
  ranking best;
  attention_scratch attention;  // of one row without values, for lse_idx
};

scratch take_all(carver& memory, const sizes& s) {
  scratch taken{};
  taken.scoring = take_scratch(memory, s.scoring);
  taken.best = take_ranking(memory, s, 1);
  taken.attention = take_scratch(memory, scratch_sizes{1, 1, 1, s.scoring.width, 0, 0});
  return taken;
}

struct layout {
  std::int64_t* tile_starts;
  ranking kept;  // [tiles][parts]
  thread_slices slices;
  double bytes;

  layout(void* memory, const sizes& s, int threads) {
    carver shared(memory);
    tile_starts = shared.take<std::int64_t>(static_cast<double>(s.batch) + 1);
    kept = take_ranking(shared, s, static_cast<double>(s.tiles) * static_cast<double>(s.parts));
    slices = take_slices(shared, threads, [&](carver& slice) { take_all(slice, s); });
    bytes = shared.bytes();
  }

  scratch of(int thread, const sizes& s) const {
    carver slice = slices.of(thread);
    return take_all(slice, s);
  }
};

class index_run {
 public:
  index_run(const index_call& call, const run_context& context)
      : call_(call),
        threads_(context.threads),
        sizes_(sizes_of(context.problem, context.threads)),
        layout_(context.scratch, sizes_, context.threads),
        tiles_(call.rows, sizes_.scoring.tile_tokens, layout_.tile_starts) {}

  void run() const {
    const std::int64_t tiles = tiles_.count();
    if (tiles > sizes_.tiles) {
      for_each_task(threads_, tiles, [&](std::int64_t i, int thread) {
        // Later tokens see more keys, and long tasks come first.
        const scratch memory = layout_.of(thread, sizes_);
        const scoring_rows rows = scoring_rows_of(call_, tiles_.at(tiles - 1 - i), memory.scoring);
        rank(rows, 0, sizes_.scoring.strips, memory, memory.best);
        write(rows, memory, memory.best);
      });
      return;
    }
    for_each_task(threads_, tiles * sizes_.parts, [&](std::int64_t i, int thread) {
      const scratch memory = layout_.of(thread, sizes_);
      const std::int64_t tile = i / sizes_.parts, part = i % sizes_.parts, strips = sizes_.scoring.strips;
      const scoring_rows rows = scoring_rows_of(call_, tiles_.at(tile), memory.scoring);
      rank(rows, part * strips / sizes_.parts, (part + 1) * strips / sizes_.parts, memory, kept(tile, part));
    });
    for_each_task(threads_, tiles, [&](std::int64_t tile, int thread) {
      const scratch memory = layout_.of(thread, sizes_);
      const scoring_rows rows = scoring_rows_of(call_, tiles_.at(tile), memory.scoring);
      put_together(rows, tile, memory.best);
      write(rows, memory, memory.best);
    });
  }

 private:
  std::int64_t blocks_of(const scoring_rows& rows, std::int64_t token) const {
    return ceil_div(rows.visible(token), call_.rule.block);
  }

  /// The best blocks of strips begin .. end - 1 for every row of the tile.
  void rank(const scoring_rows& rows, std::int64_t begin, std::int64_t end, const scratch& memory,
            const ranking& best) const {
    const std::int64_t all_rows = rows.tile.tokens * call_.heads, strip = sizes_.scoring.strip_blocks;
    std::fill_n(best.counts, all_rows, 0);
    const std::int64_t visible = blocks_of(rows, rows.tile.tokens - 1);
    // Up to there blocks have to be scored; of few blocks every row takes all.
    const std::int64_t scored = call_.scores != nullptr ? call_.max_blocks : visible <= call_.rule.topk ? 0 : visible;
    for (std::int64_t s = begin; s < end && s * strip < scored; ++s) {
      const std::int64_t first = s * strip, count = std::min(strip, scored - first);
      score_strip(call_, rows, first, count, strip, memory.scoring);
      if (call_.scores != nullptr) write_strip(call_, rows, first, count, strip, memory.scoring);
      for (std::int64_t row = 0; row < all_rows; ++row) {
        const free_blocks free = free_blocks_of(call_.rule, blocks_of(rows, row / call_.heads));
        const std::int64_t from = std::max(first, free.first);
        const std::int64_t to = std::min(first + count, free.first + free.count);
        if (from >= to) continue;
        best_blocks list{best.chosen + row * sizes_.capacity, free.wanted, best.counts[row]};
        offer(list, memory.scoring.maxima + row * strip + (from - first), from, to - from);
        best.counts[row] = list.count;
      }
    }
  }

  ranking kept(std::int64_t tile, std::int64_t part) const {
    const std::int64_t row = (tile * sizes_.parts + part) * sizes_.scoring.rows;
    return {layout_.kept.chosen + row * sizes_.capacity, layout_.kept.counts + row};
  }

  /// The best of all parts, which is the best of all blocks.
  void put_together(const scoring_rows& rows, std::int64_t tile, const ranking& best) const {
    for (std::int64_t row = 0; row < rows.tile.tokens * call_.heads; ++row) {
      const free_blocks free = free_blocks_of(call_.rule, blocks_of(rows, row / call_.heads));
      best_blocks list{best.chosen + row * sizes_.capacity, free.wanted};
      for (std::int64_t part = 0; part < sizes_.parts; ++part) {
        const ranking from = kept(tile, part);
        offer_sorted(list, from.chosen + row * sizes_.capacity, from.counts[row]);
      }
      best.counts[row] = list.count;
    }
  }

  void write(const scoring_rows& rows, const scratch& memory, const ranking& best) const {
    for (std::int64_t row = 0; row < rows.tile.tokens * call_.heads; ++row) {
      const std::int64_t token = row / call_.heads, head = row % call_.heads;
      const std::int64_t visible = blocks_of(rows, token);
      best_blocks list{best.chosen + row * sizes_.capacity, 0, best.counts[row]};
      std::int32_t* ids = call_.ids + (rows.tile.first_row + token) * call_.id_row_stride + head * call_.id_head_stride;
      write_ids(call_.rule, visible, list, ids);
      if (call_.lse == nullptr) continue;
      call_.lse[(rows.tile.first_row + token) * call_.lse_row_stride + head * call_.lse_head_stride] =
          log_sum_of(rows, row, ids, std::min<std::int64_t>(visible, call_.rule.topk), memory.attention);
    }
  }

  /// Over the visible keys of the selected blocks.
  float log_sum_of(const scoring_rows& rows, std::int64_t row, const std::int32_t* ids, std::int64_t blocks,
                   const attention_scratch& memory) const {
    const std::int64_t seen = rows.visible(row / call_.heads);
    const key_list keys =
        keys_of_blocks(rows.tile.sequence, 0, ids, static_cast<std::int32_t>(blocks), call_.rule.block, seen);
    const auto scale = static_cast<float>(rows.scale * std::numbers::log2e);
    attend_list({call_.keys, {}, call_.width}, keys, {rows.queries + row * call_.width, 1, 1, 1, scale, keys.count},
                chunk_tiles(keys.tiles()), memory);
    return log_sum(memory.total, 0);
  }

  const index_call& call_;
  int threads_;
  sizes sizes_;
  layout layout_;
  token_tiles tiles_;
};

}  // namespace

void index(const index_call& call, const run_context& context) { index_run(call, context).run(); }

double index_scratch_bytes(const msabench_problem& problem, int threads) {
  return layout(nullptr, sizes_of(problem, threads), threads).bytes;
}

}  // namespace msabench::cpu

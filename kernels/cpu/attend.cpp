// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <numbers>

#include "kernels/common/check.h"
#include "kernels/common/declare.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/operators.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/token_tiles.h"

namespace msabench::cpu {
namespace {

struct sizes {
  scratch_sizes tile;
  std::int64_t batch;
  bool shares;         // tokens of a tile have blocks of their own
  std::int64_t parts;  // (tile, KV heads) pairs whose chunks are computed apart and kept; 0 = none
  std::int64_t rows() const { return tile.rows(); }
};

/// Query tokens of a tile.
std::int64_t tile_tokens(const msabench_problem& p, int threads) {
  const std::int64_t group = p.hq / p.hkv, longest = std::max<std::int64_t>(1, p.max_q_len);
  // Where all keys are visible, neighbours share them.
  if (reads_all_keys(p)) return std::clamp<std::int64_t>(dense_rows / group, 1, longest);
  if (p.block < least_block_tile) return 1;
  std::int64_t tokens = std::clamp<std::int64_t>(sharing_rows / group, 1, longest);
  while (tokens > 1 && most_tiles(p.total_q, p.batch, tokens) * p.hkv < enough_tasks(threads)) tokens /= 2;
  return tokens;
}

sizes sizes_of(const msabench_problem& p, int threads) {
  const bool dense = reads_all_keys(p);
  const std::int64_t tokens = tile_tokens(p, threads);
  // Of few tokens all heads are taken together, since their keys are read at the speed of memory.
  const std::int64_t heads = dense && tokens * (p.hq / p.hkv) <= 32 ? p.hkv : 1;
  sizes s{
      {heads, tokens, p.hq / p.hkv, p.d, padded_columns(p.d), dense ? 0 : p.topk}, p.batch, !dense && tokens > 1, 0};
  // Few rows leave threads idle unless their keys are shared out too; selections are of one size, so two for each thread
  // are enough. 256 MiB are kept at most.
  const std::int64_t enough = dense ? enough_tasks(threads) : 2 * std::int64_t{threads};
  const std::int64_t pairs = most_tiles(p.total_q, p.batch, tokens) * (p.hkv / heads);
  const double kept = static_cast<double>(pairs) * most_chunks * static_cast<double>(s.rows()) *
                      static_cast<double>(s.tile.columns + 2) * sizeof(float);
  if (threads > 1 && !s.shares && pairs < enough && kept < 256.0 * (1 << 20)) s.parts = pairs;
  return s;
}

/// Everything of a run: per-thread scratch lies in slices of one size behind what all threads share.
struct layout {
  std::int64_t* tile_starts;
  partial_rows kept;  // [parts][most_chunks]
  thread_slices slices;
  double bytes;

  layout(void* memory, const sizes& s, int threads) {
    carver shared(memory);
    tile_starts = shared.take<std::int64_t>(static_cast<double>(s.batch) + 1);
    kept =
        take_rows(shared, static_cast<double>(s.parts * most_chunks) * static_cast<double>(s.rows()), s.tile.columns);
    slices = take_slices(shared, threads, [&](carver& slice) { take_scratch(slice, s.tile); });
    bytes = shared.bytes();
  }

  attention_scratch of(int thread, const sizes& s) const {
    carver slice = slices.of(thread);
    return take_scratch(slice, s.tile);
  }
};

class attention_run {
 public:
  attention_run(const attend_call& call, const run_context& context)
      : call_(call),
        caches_{call.keys, call.values, call.d},
        threads_(context.threads),
        sizes_(sizes_of(context.problem, context.threads)),
        layout_(context.scratch, sizes_, context.threads),
        tiles_(call.rows, sizes_.tile.tokens, layout_.tile_starts),
        exponent_scale_(static_cast<float>(std::abs(call.scale * std::numbers::log2e))) {}

  void run() const {
    const std::int64_t pairs = tiles_.count() * (call_.kv_heads / sizes_.tile.heads);
    if (pairs > sizes_.parts) {
      // Later tokens see more keys, and long tasks come first.
      for_each_task(threads_, pairs, [&](std::int64_t i, int thread) { whole(pairs - 1 - i, thread); });
      return;
    }
    for_each_task(threads_, pairs * most_chunks, [&](std::int64_t i, int thread) { part(i, thread); });
    for_each_task(threads_, pairs, [&](std::int64_t i, int thread) { put_together(i, thread); });
  }

 private:
  struct tile_work {
    token_tile tile;
    key_list keys;
    std::int64_t first_visible;
    std::int64_t chunk;  // tiles
  };

  tile_work work_of(std::int64_t pair, const attention_scratch& scratch) const {
    const std::int64_t tile_pairs = call_.kv_heads / sizes_.tile.heads;
    const token_tile tile = tiles_.at(pair / tile_pairs);
    const auto kv_head = static_cast<std::int32_t>(pair % tile_pairs * sizes_.tile.heads);
    const row_place last = call_.rows.place(tile.first_row + tile.tokens - 1);
    const std::int64_t seen = std::clamp<std::int64_t>(last.position + 1, 0, last.length);
    if (call_.ids == nullptr || sizes_.shares) {
      const key_list keys{tile.sequence, kv_head, nullptr, call_.block, seen};
      // Of a segment the first token sees all that the last one does.
      const std::int64_t first_visible = call_.rows.kv_lens == nullptr ? seen : last.position + 2 - tile.tokens;
      return {tile, keys, first_visible, chunk_tiles(ceil_div(last.length, tile_keys))};
    }
    const key_list keys = keys_of_token(tile, kv_head, 0, scratch);
    return {tile, keys, keys.count, chunk_tiles(keys.tiles())};
  }

  /// The keys of the blocks of a token of the tile.
  key_list keys_of_token(const token_tile& tile, std::int32_t kv_head, std::int64_t token,
                         const attention_scratch& scratch) const {
    const std::int64_t row = tile.first_row + token;
    const row_place place = call_.rows.place(row);
    std::int32_t* blocks = scratch.blocks + token * call_.topk;
    const std::int32_t count = row_blocks(call_.ids + row * call_.id_row_stride + kv_head * call_.id_head_stride,
                                          call_.topk, visible_blocks(place, call_.block), blocks);
    return keys_of_blocks(tile.sequence, kv_head, blocks, count, call_.block, place.position + 1);
  }

  void find_shared(const tile_work& work, const attention_scratch& scratch) const {
    for (std::int64_t token = 0; token < work.tile.tokens; ++token) {
      const key_list keys = keys_of_token(work.tile, work.keys.kv_head, token, scratch);
      const auto count = static_cast<std::int32_t>(ceil_div(keys.count, call_.block));
      scratch.shared[token] = {keys.blocks, count, 0, chunk_tiles(keys.tiles()), 0};
    }
  }

  /// Where a row of a tile stands in token tensors.
  struct row_index {
    std::int64_t token, head;
  };
  row_index at(const tile_work& work, std::int64_t row) const {
    const std::int64_t head_rows = work.tile.tokens * call_.group;
    return {work.tile.first_row + row % head_rows / call_.group,
            (work.keys.kv_head + row / head_rows) * call_.group + row % call_.group};
  }

  query_rows queries_of(const tile_work& work, const attention_scratch& scratch) const {
    const float sign = call_.scale < 0 ? -1.0f : 1.0f;
    const query_rows rows{scratch.queries,
                          static_cast<std::int32_t>(sizes_.tile.heads),
                          static_cast<std::int32_t>(work.tile.tokens),
                          call_.group,
                          exponent_scale_,
                          work.first_visible};
    const auto address = [&](std::int64_t row) {
      const row_index index = at(work, row);
      return call_.q + (index.token * call_.q_row_stride + index.head * call_.q_head_stride) * bytes_of(call_.q_type);
    };
    constexpr std::int64_t rows_ahead = 32;
    for (std::int64_t row = 0; row < rows.count(); ++row) {
      if (row + rows_ahead < rows.count())
        bring_near(address(row + rows_ahead), call_.d * static_cast<int>(bytes_of(call_.q_type)));
      widen(address(row), call_.q_type, call_.d, sign, scratch.queries + row * call_.d);
    }
    return rows;
  }

  void whole(std::int64_t pair, int thread) const {
    const attention_scratch scratch = layout_.of(thread, sizes_);
    const tile_work work = work_of(pair, scratch);
    const query_rows rows = queries_of(work, scratch);
    if (sizes_.shares) {
      find_shared(work, scratch);
      attend_shared(caches_, work.keys, rows, scratch);
    } else {
      attend_list(caches_, work.keys, rows, work.chunk, scratch);
    }
    store(work, scratch.total);
  }

  void part(std::int64_t index, int thread) const {
    const attention_scratch scratch = layout_.of(thread, sizes_);
    const std::int64_t pair = index / most_chunks, c = index % most_chunks;
    const tile_work work = work_of(pair, scratch);
    const std::int64_t first = c * work.chunk, tiles = work.keys.tiles();
    if (first >= tiles) return;
    attend_tiles(caches_, work.keys, queries_of(work, scratch), first, std::min(first + work.chunk, tiles), scratch,
                 kept(pair, c));
  }

  void put_together(std::int64_t pair, int thread) const {
    const attention_scratch scratch = layout_.of(thread, sizes_);
    const tile_work work = work_of(pair, scratch);
    clear_rows(sizes_.rows(), sizes_.tile.columns, scratch.total);
    for (std::int64_t c = 0; c * work.chunk < work.keys.tiles(); ++c) {
      merge_rows(kept(pair, c), rows_of(work), sizes_.tile.columns, scratch.total);
    }
    store(work, scratch.total);
  }

  partial_rows kept(std::int64_t pair, std::int64_t chunk) const {
    return rows_from(layout_.kept, (pair * most_chunks + chunk) * sizes_.rows(), sizes_.tile.columns);
  }

  std::int64_t rows_of(const tile_work& work) const { return sizes_.tile.heads * work.tile.tokens * call_.group; }

  void store(const tile_work& work, const partial_rows& total) const {
    for (std::int64_t row = 0; row < rows_of(work); ++row) {
      const row_index index = at(work, row);
      const std::int64_t element = index.token * call_.out_row_stride + index.head * call_.out_head_stride;
      char* to = call_.out + element * bytes_of(call_.out_type);
      divide_row(total.sums + row * sizes_.tile.columns, total.weights[row], call_.d, call_.out_type, to);
      if (call_.lse == nullptr) continue;
      call_.lse[index.token * call_.lse_row_stride + index.head * call_.lse_head_stride] = log_sum(total, row);
    }
  }

  const attend_call& call_;
  attention_caches caches_;
  int threads_;
  sizes sizes_;
  layout layout_;
  token_tiles tiles_;
  float exponent_scale_;  // softmax_scale * log2(e)
};

}  // namespace

void attend(const attend_call& call, const run_context& context) { attention_run(call, context).run(); }

double attend_scratch_bytes(const msabench_problem& problem, int threads) {
  return layout(nullptr, sizes_of(problem, threads), threads).bytes;
}

}  // namespace msabench::cpu

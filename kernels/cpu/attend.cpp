// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <numbers>

#include "kernels/common/storage.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/operators.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/token_tiles.h"

namespace msabench::cpu {
namespace {

constexpr float nothing = -std::numeric_limits<float>::infinity();

struct sizes {
  std::int64_t group, tile_tokens, rows;  // rows of a tile
  std::int64_t d, columns;
  std::int64_t capacity;  // ids of a row; 0 = dense
  std::int64_t batch;
  std::int64_t parts;  // (tile, KV head) pairs whose chunks are computed apart and kept; 0 = none
  scratch_sizes scratch() const { return {rows, d, columns, capacity}; }
};

sizes sizes_of(const msabench_problem& p, int threads) {
  sizes s{};
  const bool dense = p.op == MSABENCH_OP_DENSE;
  s.group = p.hq / p.hkv;
  // A selection belongs to one token; where all keys are visible, neighbours share them.
  s.tile_tokens = dense ? std::clamp<std::int64_t>(tile_rows / s.group, 1, std::max<std::int64_t>(1, p.max_q_len)) : 1;
  s.rows = s.group * s.tile_tokens;
  s.d = p.d;
  s.columns = padded_columns(p.d);
  s.capacity = dense ? 0 : p.topk;
  s.batch = p.batch;
  // Few rows leave threads idle unless their keys are shared out too. 256 MiB are kept at most.
  const std::int64_t pairs = most_tiles(p.total_q, p.batch, s.tile_tokens) * p.hkv;
  const double kept = static_cast<double>(pairs) * most_chunks * static_cast<double>(s.rows) *
                      static_cast<double>(s.columns + 2) * sizeof(float);
  if (threads > 1 && pairs < enough_tasks(threads) && kept < 256.0 * (1 << 20)) s.parts = pairs;
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
    kept = take_rows(shared, static_cast<double>(s.parts * most_chunks) * static_cast<double>(s.rows), s.columns);
    slices = take_slices(shared, threads, [&](carver& slice) { take_scratch(slice, s.scratch()); });
    bytes = shared.bytes();
  }

  attention_scratch of(int thread, const sizes& s) const {
    carver slice = slices.of(thread);
    return take_scratch(slice, s.scratch());
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
        tiles_(call.rows, sizes_.tile_tokens, layout_.tile_starts),
        exponent_scale_(static_cast<float>(std::abs(call.scale * std::numbers::log2e))) {}

  void run() const {
    const std::int64_t pairs = tiles_.count() * call_.kv_heads;
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
    std::int64_t chunk;  // keys
    std::int64_t chunks() const { return ceil_div(keys.count, chunk); }
  };

  tile_work work_of(std::int64_t pair, const attention_scratch& scratch) const {
    const token_tile tile = tiles_.at(pair / call_.kv_heads);
    const auto kv_head = static_cast<std::int32_t>(pair % call_.kv_heads);
    const row_place last = call_.rows.place(tile.first_row + tile.tokens - 1);
    const std::int64_t seen = std::clamp<std::int64_t>(last.position + 1, 0, last.length);
    if (call_.ids == nullptr) {
      return {
          tile, {tile.sequence, kv_head, nullptr, 1, seen}, last.position + 2 - tile.tokens, chunk_keys(last.length)};
    }
    const std::int32_t* ids = call_.ids + tile.first_row * call_.id_row_stride + kv_head * call_.id_head_stride;
    const std::int64_t visible = visible_blocks(last, call_.block);
    const std::int32_t blocks = row_blocks(ids, call_.topk, visible, scratch.blocks);
    const key_list keys = keys_of_blocks(tile.sequence, kv_head, scratch.blocks, blocks, call_.block, seen);
    return {tile, keys, keys.count, chunk_keys(keys.count)};
  }

  query_rows queries_of(const tile_work& work, const attention_scratch& scratch) const {
    const float sign = call_.scale < 0 ? -1.0f : 1.0f;
    for (std::int64_t row = 0; row < work.tile.tokens * call_.group; ++row) {
      const std::int64_t head = std::int64_t{work.keys.kv_head} * call_.group + row % call_.group;
      const std::int64_t element =
          (work.tile.first_row + row / call_.group) * call_.q_row_stride + head * call_.q_head_stride;
      widen(call_.q + element * bytes_of(call_.q_type), call_.q_type, call_.d, sign, scratch.queries + row * call_.d);
    }
    return {scratch.queries, static_cast<std::int32_t>(work.tile.tokens), call_.group, exponent_scale_,
            work.first_visible};
  }

  void whole(std::int64_t pair, int thread) const {
    const attention_scratch scratch = layout_.of(thread, sizes_);
    const tile_work work = work_of(pair, scratch);
    const query_rows rows = queries_of(work, scratch);
    attend_list(caches_, work.keys, rows, work.chunk, scratch);
    store(work, scratch.total);
  }

  void part(std::int64_t index, int thread) const {
    const attention_scratch scratch = layout_.of(thread, sizes_);
    const std::int64_t pair = index / most_chunks, c = index % most_chunks;
    const tile_work work = work_of(pair, scratch);
    const std::int64_t first = c * work.chunk;
    if (first >= work.keys.count) return;
    attend_chunk(caches_, work.keys, queries_of(work, scratch), first, std::min(work.chunk, work.keys.count - first),
                 scratch, kept(pair, c));
  }

  void put_together(std::int64_t pair, int thread) const {
    const attention_scratch scratch = layout_.of(thread, sizes_);
    const tile_work work = work_of(pair, scratch);
    clear_rows(sizes_.rows, sizes_.columns, scratch.total);
    for (std::int64_t c = 0; c < work.chunks(); ++c) {
      merge_rows(kept(pair, c), work.tile.tokens * call_.group, sizes_.columns, scratch.total);
    }
    store(work, scratch.total);
  }

  partial_rows kept(std::int64_t pair, std::int64_t chunk) const {
    const std::int64_t row = (pair * most_chunks + chunk) * sizes_.rows;
    return {layout_.kept.sums + row * sizes_.columns, layout_.kept.references + row, layout_.kept.weights + row};
  }

  void store(const tile_work& work, const partial_rows& total) const {
    for (std::int64_t row = 0; row < work.tile.tokens * call_.group; ++row) {
      const std::int64_t token = work.tile.first_row + row / call_.group;
      const std::int64_t head = std::int64_t{work.keys.kv_head} * call_.group + row % call_.group;
      float* sums = total.sums + row * sizes_.columns;
      const bool empty = total.references[row] == nothing;
      for (std::int32_t c = 0; c < call_.d; ++c) sums[c] = empty ? 0.0f : sums[c] / total.weights[row];
      const std::int64_t element = token * call_.out_row_stride + head * call_.out_head_stride;
      store_row(sums, call_.d, call_.out_type, call_.out + element * bytes_of(call_.out_type));
      if (call_.lse == nullptr) continue;
      call_.lse[token * call_.lse_row_stride + head * call_.lse_head_stride] = log_sum(total, row);
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

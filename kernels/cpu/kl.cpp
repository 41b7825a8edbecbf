// SPDX-License-Identifier: Apache-2.0
// The loss of the index branch and its gradients. The batch is taken in chunks of tokens: by tile of tokens and KV head the
// teacher's and the student's weights, and from their differences the loss and dq_idx; then by block of keys, over the
// tokens of the chunk that read it, dk_idx. So scores are computed once, each result has one writer, and of the
// differences only those of a chunk are kept.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/common/check.h"
#include "kernels/common/declare.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/divergence.h"
#include "kernels/cpu/gradients.h"
#include "kernels/cpu/operators.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/token_tiles.h"

namespace msabench::cpu {
namespace {

/// Differences that are kept, and scores of a tile, which should stay in a second-level cache.
constexpr double chunk_bytes = 64.0 * (1 << 20), tile_bytes = 1 << 20;

/// Elements behind the last key that whole vectors write to.
constexpr std::int64_t overhang = 16;

struct sizes {
  std::int64_t tokens, batch, keys, max_blocks;      // of the problem
  std::int32_t kv_heads, group, d, di, block, topk;  // topk 0 = every visible key
  std::int64_t width;                                // columns of a row's scores
  std::int64_t tile_tokens, chunk_tiles;
  std::int64_t chunk_tokens() const { return tile_tokens * chunk_tiles; }
};

sizes sizes_of(const msabench_problem& p) {
  sizes s{p.total_q,
          p.batch,
          p.total_kv,
          max_blocks(p),
          p.hkv,
          p.hq / p.hkv,
          p.d,
          p.di,
          block_size(p),
          p.kl_warm_up != 0 ? 0 : p.topk,
          0,
          0,
          0};
  const std::int64_t most = s.topk > 0 ? std::min<std::int64_t>(s.topk, s.max_blocks) * s.block : p.max_kv_len;
  s.width = ceil_div(most, overhang) * overhang + overhang;
  const double token = static_cast<double>(s.width) * sizeof(float);
  const auto fit = [&](double bytes, double rows) {
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::min(bytes / (token * rows), 1e6)));
  };
  s.tile_tokens = std::min(fit(tile_bytes, s.group + 2.0), std::max<std::int64_t>(1, p.max_q_len));
  s.chunk_tiles = std::clamp<std::int64_t>(fit(chunk_bytes, s.kv_heads) / s.tile_tokens, 1,
                                           std::max<std::int64_t>(1, most_tiles(p.total_q, p.batch, s.tile_tokens)));
  return s;
}

/// What a thread computes in, in one step or the other.
struct row_scratch {
  float *queries, *index_queries;  // [tokens][group][d], [tokens][di]
  float *teacher, *student;        // [tokens][group][width], [tokens][width]
  float* sums;                     // [tokens][padded_columns(di)]
  float* panel;
  const char **keys, **index_keys;              // [tile_keys]
  std::int32_t *blocks, *all, *counts, *next;   // [tokens][topk], [tokens * topk], [tokens], [tokens]
  const float **left, **index_left, **factors;  // [tokens]
  float **to, **index_to, **sums_of;            // [tokens]
};
struct key_scratch {
  float *turned, *panel;
  const char** queries;   // [tile_keys]
  const float** factors;  // [tile_keys]
  std::int32_t* blocks;   // [topk]
};

row_scratch take_rows(carver& memory, const sizes& s) {
  const auto tokens = static_cast<double>(s.tile_tokens), width = static_cast<double>(s.width);
  row_scratch t{};
  t.queries = memory.take<float>(tokens * s.group * s.d);
  t.index_queries = memory.take<float>(tokens * s.di);
  t.teacher = memory.take<float>(tokens * s.group * width);
  t.student = memory.take<float>(tokens * width);
  t.sums = memory.take<float>(tokens * static_cast<double>(padded_columns(s.di)));
  t.panel = memory.take<float>(static_cast<double>(std::max({s.d, s.di, tile_keys}) * panel_columns));
  for (const char*** each : {&t.keys, &t.index_keys}) *each = memory.take<const char*>(tile_keys);
  for (std::int32_t** each : {&t.blocks, &t.all}) *each = memory.take<std::int32_t>(tokens * s.topk);
  for (std::int32_t** each : {&t.counts, &t.next}) *each = memory.take<std::int32_t>(tokens);
  for (const float*** each : {&t.left, &t.index_left, &t.factors}) *each = memory.take<const float*>(tokens);
  for (float*** each : {&t.to, &t.index_to, &t.sums_of}) *each = memory.take<float*>(tokens);
  return t;
}

key_scratch take_keys(carver& memory, const sizes& s) {
  key_scratch t{};
  t.turned = memory.take<float>(tile_keys * panel_columns);
  t.panel = memory.take<float>(tile_keys * panel_columns);
  t.queries = memory.take<const char*>(tile_keys);
  t.factors = memory.take<const float*>(tile_keys);
  t.blocks = memory.take<std::int32_t>(s.topk);
  return t;
}

struct layout {
  std::int64_t* tile_starts;
  float* differences;  // [chunk tokens][Hkv][width]
  float* dk_idx;       // [keys][padded_columns(di)]
  double* losses;      // [T][Hkv]
  thread_slices slices;
  double bytes;

  layout(carver memory, const sizes& s, int threads) {
    const auto heads = static_cast<double>(s.kv_heads);
    tile_starts = memory.take<std::int64_t>(static_cast<double>(s.batch) + 1);
    differences = memory.take<float>(static_cast<double>(s.chunk_tokens()) * heads * static_cast<double>(s.width));
    dk_idx = memory.take<float>(static_cast<double>(s.keys) * static_cast<double>(padded_columns(s.di)));
    losses = memory.take<double>(static_cast<double>(s.tokens) * heads);
    slices = take_slices(memory, threads, [&](carver& slice) {
      carver rows(nullptr), keys(nullptr);
      take_rows(rows, s);
      take_keys(keys, s);
      slice.take<char>(std::max(rows.bytes(), keys.bytes()));
    });
    bytes = memory.bytes();
  }
};

class kl_run {
 public:
  kl_run(const kl_call& call, const run_context& context)
      : call_(call),
        threads_(context.threads),
        sizes_(sizes_of(context.problem)),
        layout_(carver(context.scratch), sizes_, context.threads),
        tiles_(call.rows, sizes_.tile_tokens, layout_.tile_starts),
        factor_(call.coeff / (static_cast<double>(std::max<std::int64_t>(call.rows.tokens(), 1)) * call.kv_heads)) {}

  void run() {
    const std::int64_t columns = padded_columns(call_.di), keys = call_.keys.cu_seqlens_kv[call_.rows.batch];
    std::fill_n(layout_.dk_idx, keys * columns, 0.0f);
    for (std::int64_t first = 0; first < tiles_.count(); first += sizes_.chunk_tiles)
      add_chunk(first, std::min(first + sizes_.chunk_tiles, tiles_.count()));
    for_each_task(threads_, ceil_div(keys, stored_keys), [&](std::int64_t i, int) {
      for (std::int64_t key = i * stored_keys; key < std::min(keys, (i + 1) * stored_keys); ++key) store_key(key);
    });
    double loss = 0;
    for (std::int64_t i = 0; i < call_.rows.tokens() * call_.kv_heads; ++i) loss += layout_.losses[i];
    *call_.loss = factor_ == 0 ? 0 : factor_ * loss;
  }

 private:
  static constexpr std::int64_t stored_keys = 64;

  void add_chunk(std::int64_t first, std::int64_t end) {
    first_row_ = tiles_.at(first).first_row;
    const token_tile last = tiles_.at(end - 1);
    end_row_ = last.first_row + last.tokens;
    // Later tokens see more keys, and long tasks come first.
    const std::int64_t pairs = (end - first) * call_.kv_heads;
    for_each_task(threads_, pairs, [&](std::int64_t i, int thread) {
      compare_tile(tiles_.at(first + (pairs - 1 - i) / call_.kv_heads),
                   static_cast<std::int32_t>((pairs - 1 - i) % call_.kv_heads), thread);
    });
    const std::int64_t sequence = tiles_.at(first).sequence, sequences = last.sequence + 1 - sequence;
    for_each_task(threads_, sequences * sizes_.max_blocks, [&](std::int64_t i, int thread) {
      add_keys(sequence + i / sizes_.max_blocks, i % sizes_.max_blocks, thread);
    });
  }

  float* differences_of(std::int64_t row, std::int32_t kv_head) const {
    return layout_.differences + ((row - first_row_) * call_.kv_heads + kv_head) * sizes_.width;
  }

  std::int32_t blocks_of(std::int64_t row, std::int32_t kv_head, std::int32_t* blocks) const {
    return row_blocks(call_.ids + row * call_.id_row_stride + kv_head * call_.id_head_stride, call_.topk,
                      visible_blocks(call_.rows.place(row), call_.block), blocks);
  }

  void compare_tile(const token_tile& tile, std::int32_t kv_head, int thread) const {
    carver slice = layout_.slices.of(thread);
    const row_scratch s = take_rows(slice, sizes_);
    const std::int64_t columns = padded_columns(call_.di);
    for (std::int64_t token = 0; token < tile.tokens; ++token) {
      const std::int64_t row = tile.first_row + token;
      for (std::int32_t member = 0; member < call_.group; ++member)
        widen(call_.q.at(row, std::int64_t{kv_head} * call_.group + member), call_.q.type, call_.d, 1.0f,
              s.queries + (token * call_.group + member) * call_.d);
      widen(call_.q_idx.at(row, kv_head), call_.q_idx.type, call_.di, 1.0f, s.index_queries + token * call_.di);
    }
    std::fill_n(s.sums, tile.tokens * columns, 0.0f);
    const auto score = [&](std::int32_t tokens, std::int32_t count) {
      score_block({s.keys, call_.keys.type, count, call_.d}, {s.left, s.to, tokens, call_.group, sizes_.width},
                  s.panel);
      score_block({s.index_keys, call_.index_keys.type, count, call_.di}, {s.index_left, s.index_to, tokens, 1, 0},
                  s.panel);
    };
    for_each_block(tile, kv_head, s, score);
    for (std::int64_t token = 0; token < tile.tokens; ++token) compare_token(tile.first_row + token, token, kv_head, s);
    const auto add = [&](std::int32_t tokens, std::int32_t count) {
      add_block({s.index_keys, call_.index_keys.type, count, call_.di}, {s.factors, s.sums_of, tokens}, s.panel);
    };
    for_each_block(tile, kv_head, s, add);
    for (std::int64_t token = 0; token < tile.tokens; ++token) {
      const std::int64_t row = tile.first_row + token;
      store_scaled(s.sums + token * columns, gradient_factor(), call_.di, call_.gradient_type,
                   call_.dq_idx.at(row, kv_head, call_.gradient_type));
      if (call_.dq.data == nullptr) continue;
      for (std::int32_t member = 0; member < call_.group; ++member)
        store_zeros(call_.dq.at(row, std::int64_t{kv_head} * call_.group + member, call_.gradient_type), call_.d);
    }
  }

  float gradient_factor() const { return static_cast<float>(factor_ * static_cast<double>(call_.index_scale)); }

  /// visit(tokens, count) for every tile of keys that some of the tokens read, with its addresses and where each of these
  /// tokens has it in its rows. Keys of a token ascend, and lie one after the other in its rows.
  template <class Visit>
  void for_each_block(const token_tile& tile, std::int32_t kv_head, const row_scratch& s, const Visit& visit) const {
    const std::int64_t last = call_.rows.place(tile.first_row + tile.tokens - 1).position + 1;
    if (call_.ids == nullptr) {
      for (std::int64_t first = 0; first < last; first += tile_keys)
        visit_keys(
            tile, kv_head, first, std::min<std::int64_t>(tile_keys, last - first), s,
            [first](std::int32_t) { return first; }, visit);
      return;
    }
    std::int32_t* end = s.all;
    for (std::int32_t token = 0; token < tile.tokens; ++token) {
      std::int32_t* const own = s.blocks + std::int64_t{token} * call_.topk;
      s.counts[token] = blocks_of(tile.first_row + token, kv_head, own);
      s.next[token] = 0;
      end = std::copy_n(own, s.counts[token], end);
    }
    std::sort(s.all, end);
    end = std::unique(s.all, end);
    for (const std::int32_t* block = s.all; block != end; ++block) {
      const std::int64_t begin = std::int64_t{*block} * call_.block, stop = std::min(begin + call_.block, last);
      for (std::int64_t first = begin; first < stop; first += tile_keys) {
        const auto column = [&](std::int32_t token) {
          const std::int32_t* const own = s.blocks + std::int64_t{token} * call_.topk;
          while (s.next[token] < s.counts[token] && own[s.next[token]] < *block) ++s.next[token];
          const bool takes = s.next[token] < s.counts[token] && own[s.next[token]] == *block;
          return takes ? std::int64_t{s.next[token]} * call_.block + first - begin : -1;
        };
        visit_keys(tile, kv_head, first, std::min<std::int64_t>(tile_keys, stop - first), s, column, visit);
      }
    }
  }

  template <class Column, class Visit>
  void visit_keys(const token_tile& tile, std::int32_t kv_head, std::int64_t first, std::int64_t count,
                  const row_scratch& s, const Column& column_of, const Visit& visit) const {
    std::int32_t tokens = 0;
    for (std::int32_t token = 0; token < tile.tokens; ++token) {
      const std::int64_t row = tile.first_row + token;
      if (call_.rows.place(row).position < first) continue;
      const std::int64_t column = column_of(token);
      if (column < 0) continue;
      s.left[tokens] = s.queries + std::int64_t{token} * call_.group * call_.d;
      s.to[tokens] = s.teacher + std::int64_t{token} * call_.group * sizes_.width + column;
      s.index_left[tokens] = s.index_queries + std::int64_t{token} * call_.di;
      s.index_to[tokens] = s.student + std::int64_t{token} * sizes_.width + column;
      s.factors[tokens] = differences_of(row, kv_head) + column;
      s.sums_of[tokens] = s.sums + std::int64_t{token} * padded_columns(call_.di);
      ++tokens;
    }
    if (tokens == 0) return;
    const key_list keys{tile.sequence, kv_head, nullptr, call_.block, first + count};
    const key_list index_keys{tile.sequence, 0, nullptr, call_.block, first + count};
    const key_range range{first, static_cast<std::int32_t>(count)};
    gather(call_.keys, keys, range, s.keys);
    gather(call_.index_keys, index_keys, range, s.index_keys);
    visit(tokens, range.count);
  }

  /// Keys that a token reads.
  std::int64_t keys_of_token(std::int64_t row, std::int64_t token, const row_scratch& s) const {
    const std::int64_t seen = std::max<std::int64_t>(0, call_.rows.place(row).position + 1);
    if (call_.ids == nullptr) return seen;
    return keys_of_blocks(0, 0, s.blocks + token * call_.topk, s.counts[token], call_.block, seen).count;
  }

  void compare_token(std::int64_t row, std::int64_t token, std::int32_t kv_head, const row_scratch& s) const {
    const std::int64_t count = keys_of_token(row, token, s);
    float* const differences = differences_of(row, kv_head);
    double& loss = layout_.losses[row * call_.kv_heads + kv_head];
    loss = 0;
    constexpr double log2e = std::numbers::log2e;
    if (count > 0)
      loss = compare_row(
          {s.teacher + token * call_.group * sizes_.width, s.student + token * sizes_.width, sizes_.width, count,
           call_.group, static_cast<float>(call_.scale * log2e), static_cast<float>(call_.index_scale * log2e)},
          differences);
    // Masked keys of a tile are multiplied too.
    std::fill(differences + count, differences + sizes_.width, 0.0f);
  }

  /// What the tokens of the chunk add to the keys of a block.
  void add_keys(std::int64_t sequence, std::int64_t block, int thread) const {
    const std::int64_t length = call_.rows.kv_lens[sequence], begin = block * call_.block;
    const std::int64_t end = std::min(length, begin + call_.block);
    carver slice = layout_.slices.of(thread);
    const key_scratch s = take_keys(slice, sizes_);
    const std::int64_t first_row = std::max<std::int64_t>(first_row_, call_.rows.cu_seqlens_q[sequence]);
    const std::int64_t end_row = std::min<std::int64_t>(end_row_, call_.rows.cu_seqlens_q[sequence + 1]);
    for (std::int64_t first = begin; first < end; first += tile_keys) {
      const auto keys = static_cast<std::int32_t>(std::min<std::int64_t>(tile_keys, end - first));
      float* const sums = layout_.dk_idx + (call_.keys.cu_seqlens_kv[sequence] + first) * padded_columns(call_.di);
      std::int32_t count = 0;
      const auto flush = [&] {
        add_rows({s.queries, call_.q_idx.type, count, call_.di}, s.factors, keys, s.turned, s.panel, sums);
        count = 0;
      };
      for (std::int32_t kv_head = 0; kv_head < call_.kv_heads; ++kv_head)
        for (std::int64_t row = first_row; row < end_row; ++row) {
          const std::int64_t column = column_of(row, kv_head, block, first, s.blocks);
          if (column < 0) continue;
          s.queries[count] = call_.q_idx.at(row, kv_head);
          s.factors[count] = differences_of(row, kv_head) + column;
          if (++count == tile_keys) flush();
        }
      if (count > 0) flush();
    }
  }

  /// Where a row has the keys from `first` on; -1: it does not read them.
  std::int64_t column_of(std::int64_t row, std::int32_t kv_head, std::int64_t block, std::int64_t first,
                         std::int32_t* blocks) const {
    if (call_.rows.place(row).position < first) return -1;
    if (call_.ids == nullptr) return first;
    const std::int32_t* const end = blocks + blocks_of(row, kv_head, blocks);
    const std::int32_t* const found = std::lower_bound(static_cast<const std::int32_t*>(blocks), end, block);
    if (found == end || *found != block) return -1;
    return (found - blocks) * call_.block + first - block * call_.block;
  }

  void store_key(std::int64_t key) const {
    const auto* row = layout_.dk_idx + key * padded_columns(call_.di);
    store_scaled(const_cast<float*>(row), gradient_factor(), call_.di, call_.gradient_type,
                 call_.dk_idx.at(key, 0, call_.gradient_type));
    if (call_.dk.data == nullptr) return;
    for (std::int32_t head = 0; head < call_.kv_heads; ++head)
      store_zeros(call_.dk.at(key, head, call_.gradient_type), call_.d);
  }

  void store_zeros(char* to, std::int32_t count) const {
    std::fill_n(to, count * bytes_of(call_.gradient_type), char{0});
  }

  const kl_call& call_;
  int threads_;
  sizes sizes_;
  layout layout_;
  token_tiles tiles_;
  double factor_;
  std::int64_t first_row_ = 0, end_row_ = 0;  // of the chunk
};

}  // namespace

void kl(const kl_call& call, const run_context& context) { kl_run(call, context).run(); }

double kl_scratch_bytes(const msabench_problem& problem, int threads) {
  return layout(carver(nullptr), sizes_of(problem), threads).bytes;
}

gradient_chains chains_of_kl(const msabench_problem& p) {
  const sizes s = sizes_of(p);
  const std::int64_t tiles =
      s.topk > 0 ? std::int64_t{s.topk} * ceil_div(s.block, tile_keys) : ceil_div(p.max_kv_len, tile_keys);
  // A chunk ends with a step that is not full.
  const std::int64_t step = rows_of_a_step(), rows = std::max<std::int64_t>(1, p.total_q * p.hkv);
  const std::int64_t chunks = ceil_div(most_tiles(p.total_q, p.batch, s.tile_tokens), s.chunk_tiles);
  return {std::min<std::int64_t>(tile_keys, s.block) + tiles, step + ceil_div(rows, step) + chunks};
}

}  // namespace msabench::cpu

// SPDX-License-Identifier: Apache-2.0
// Gradients of attention in two passes, so that each result has one writer and no matrix of all weights is kept: dq by
// tiles of tokens over the keys that they read, dk and dv by blocks of keys over the tokens that read them. Scores and
// weights are computed in both.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "kernels/common/check.h"
#include "kernels/common/declare.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/gradients.h"
#include "kernels/cpu/operators.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/readers.h"
#include "kernels/cpu/token_tiles.h"

namespace msabench::cpu {
namespace {

/// Rows that read a block of keys, in a step.
constexpr std::int64_t reading_rows = 128;

struct sizes {
  std::int64_t tokens, batch, max_blocks;        // of the problem
  std::int32_t kv_heads, group, d, block, topk;  // topk 0 = every visible key
  std::int64_t tile_tokens, reader_tokens;       // of a tile of either pass
  std::int64_t tile_rows() const { return tile_tokens * group; }
  std::int64_t reader_rows() const { return ceil_div(reader_tokens * group, panel_columns) * panel_columns; }
};

sizes sizes_of(const msabench_problem& p, int threads) {
  const bool dense = reads_all_keys(p);
  const std::int32_t group = p.hq / p.hkv;
  const std::int64_t longest = std::max<std::int64_t>(1, p.max_q_len);
  std::int64_t tokens = std::clamp<std::int64_t>((dense ? dense_rows : sharing_rows) / group, 1, longest);
  while (tokens > 1 && most_tiles(p.total_q, p.batch, tokens) * p.hkv < enough_tasks(threads)) tokens /= 2;
  return {p.total_q, p.batch,       max_blocks(p),      p.hkv,  group,
          p.d,       block_size(p), dense ? 0 : p.topk, tokens, std::max<std::int64_t>(1, reading_rows / group)};
}

/// What a thread computes in, in one pass or the other.
struct row_scratch {
  float *queries, *d_out, *dq, *lse, *delta;
  gradient_scratch gradient;
  const char **keys, **values;  // [tile_keys]
  std::int32_t *seen, *next;    // [tokens]
  token_range* runs;            // [tokens]
  std::int32_t *blocks, *all;   // [tokens][topk], [tokens * topk]
  std::int32_t* counts;         // [tokens]
};
struct key_scratch {
  float *keys, *values, *dk, *dv, *lse, *delta, *seen;
  gradient_scratch gradient;
  const char **queries, **d_out;  // [rows]
};

row_scratch take_rows(carver& memory, const sizes& s) {
  const auto rows = static_cast<double>(s.tile_rows()), d = static_cast<double>(s.d);
  const auto tokens = static_cast<double>(s.tile_tokens), selected = tokens * s.topk;
  row_scratch t{};
  for (float** each : {&t.queries, &t.d_out}) *each = memory.take<float>(rows * d);
  t.dq = memory.take<float>(rows * static_cast<double>(padded_columns(s.d)));
  for (float** each : {&t.lse, &t.delta}) *each = memory.take<float>(rows);
  t.gradient.scores = memory.take<float>(rows * tile_keys);
  t.gradient.d_weights = memory.take<float>(rows * tile_keys);
  t.gradient.panel = memory.take<float>(std::max<double>(d, tile_keys) * panel_columns);
  for (const char*** each : {&t.keys, &t.values}) *each = memory.take<const char*>(tile_keys);
  for (std::int32_t** each : {&t.seen, &t.next, &t.counts}) *each = memory.take<std::int32_t>(tokens);
  t.runs = memory.take<token_range>(tokens);
  for (std::int32_t** each : {&t.blocks, &t.all}) *each = memory.take<std::int32_t>(selected);
  return t;
}

key_scratch take_keys(carver& memory, const sizes& s) {
  const auto rows = static_cast<double>(s.reader_rows()), d = static_cast<double>(s.d);
  key_scratch t{};
  for (float** each : {&t.keys, &t.values}) *each = memory.take<float>(tile_keys * d);
  for (float** each : {&t.dk, &t.dv}) *each = memory.take<float>(static_cast<double>(tile_keys * padded_columns(s.d)));
  for (float** each : {&t.lse, &t.delta, &t.seen}) *each = memory.take<float>(rows);
  t.gradient.scores = memory.take<float>(rows * tile_keys);
  t.gradient.d_weights = memory.take<float>(rows * tile_keys);
  t.gradient.panel = memory.take<float>(std::max<double>(d, rows) * panel_columns);
  for (const char*** each : {&t.queries, &t.d_out}) *each = memory.take<const char*>(rows);
  return t;
}

struct layout {
  float *lse, *delta;  // [T][Hq]
  std::int64_t* tile_starts;
  block_readers readers;
  thread_slices slices;
  double bytes;

  layout(carver memory, const sizes& s, int threads)
      : lse(take_each(memory, s)),
        delta(take_each(memory, s)),
        tile_starts(memory.take<std::int64_t>(static_cast<double>(s.batch) + 1)),
        readers(memory, s.topk > 0 ? s.tokens : 0, s.topk > 0 ? s.batch : 0, s.kv_heads, s.topk, s.max_blocks, threads),
        slices(take_slices(memory, threads,
                           [&](carver& slice) {
                             carver rows(nullptr), keys(nullptr);
                             take_rows(rows, s);
                             take_keys(keys, s);
                             slice.take<char>(std::max(rows.bytes(), keys.bytes()));
                           })),
        bytes(memory.bytes()) {}

 private:
  static float* take_each(carver& memory, const sizes& s) {
    return memory.take<float>(static_cast<double>(s.tokens) * s.kv_heads * s.group);
  }
};

class backward_run {
 public:
  backward_run(const backward_call& call, const run_context& context)
      : call_(call),
        threads_(context.threads),
        sizes_(sizes_of(context.problem, context.threads)),
        layout_(carver(context.scratch), sizes_, context.threads),
        tiles_(call.rows, sizes_.tile_tokens, layout_.tile_starts),
        exponent_scale_(static_cast<float>(call.scale * std::numbers::log2e)) {}

  void run() {
    const std::int64_t rows = call_.rows.tokens();
    for_each_task(threads_, ceil_div(rows, task_tokens), [&](std::int64_t i, int) {
      for (std::int64_t row = i * task_tokens; row < std::min(rows, (i + 1) * task_tokens); ++row) sum_row(row);
    });
    if (call_.ids != nullptr)
      layout_.readers.find({call_.rows, call_.ids, call_.id_row_stride, call_.id_head_stride, call_.kv_heads,
                            call_.block, call_.topk, sizes_.max_blocks},
                           threads_);
    // Later tokens see more keys, and long tasks come first.
    const std::int64_t pairs = tiles_.count() * call_.kv_heads;
    for_each_task(threads_, pairs, [&](std::int64_t i, int thread) {
      differentiate_tile(tiles_.at((pairs - 1 - i) / call_.kv_heads),
                         static_cast<std::int32_t>((pairs - 1 - i) % call_.kv_heads), thread);
    });
    const std::int64_t blocks = call_.rows.batch * sizes_.max_blocks;
    for_each_task(threads_, blocks * call_.kv_heads, [&](std::int64_t i, int thread) {
      const std::int64_t place = i / call_.kv_heads;
      differentiate_block(place / sizes_.max_blocks, place % sizes_.max_blocks,
                          static_cast<std::int32_t>(i % call_.kv_heads), thread);
    });
  }

 private:
  static constexpr std::int64_t task_tokens = 64;

  std::int64_t heads() const { return std::int64_t{call_.kv_heads} * call_.group; }

  void sum_row(std::int64_t row) const {
    for (std::int64_t head = 0; head < heads(); ++head) {
      const std::int64_t at = row * heads() + head;
      layout_.lse[at] =
          static_cast<float>(static_cast<double>(call_.lse[row * call_.lse_row_stride + head * call_.lse_head_stride]) *
                             std::numbers::log2e);
      layout_.delta[at] = product(call_.d_out.at(row, head), call_.out.at(row, head), call_.out.type, call_.d);
    }
  }

  void differentiate_tile(const token_tile& tile, std::int32_t kv_head, int thread) const {
    carver slice = layout_.slices.of(thread);
    const row_scratch s = take_rows(slice, sizes_);
    const std::int64_t stride = padded_columns(call_.d), rows = tile.tokens * call_.group;
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t token = tile.first_row + row / call_.group, head = kv_head * call_.group + row % call_.group;
      widen(call_.q.at(token, head), call_.q.type, call_.d, 1.0f, s.queries + row * call_.d);
      widen(call_.d_out.at(token, head), call_.d_out.type, call_.d, 1.0f, s.d_out + row * call_.d);
      s.lse[row] = layout_.lse[token * heads() + head];
      s.delta[row] = layout_.delta[token * heads() + head];
    }
    std::fill_n(s.dq, rows * stride, 0.0f);
    const gradient_rows queries{s.queries, s.d_out, {s.lse, s.delta}, call_.group, call_.d, exponent_scale_};
    if (call_.ids == nullptr)
      read_all(tile, kv_head, queries, s);
    else
      read_selected(tile, kv_head, queries, s);
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t token = tile.first_row + row / call_.group, head = kv_head * call_.group + row % call_.group;
      store_scaled(s.dq + row * stride, call_.scale, call_.d, call_.gradient_type,
                   call_.dq.at(token, head, call_.gradient_type));
    }
  }

  /// Tokens of the tile that take the keys first .. first + count - 1, in runs; their dq.
  template <class Takes>
  void read_keys(const token_tile& tile, std::int32_t kv_head, std::int64_t first, std::int64_t count,
                 const gradient_rows& queries, const row_scratch& s, const Takes& takes) const {
    std::int32_t runs = 0;
    for (std::int32_t token = 0; token < tile.tokens; ++token) {
      const std::int64_t position = call_.rows.place(tile.first_row + token).position;
      s.seen[token] = static_cast<std::int32_t>(std::clamp<std::int64_t>(position + 1 - first, 0, count));
      if (s.seen[token] == 0 || !takes(token)) continue;
      if (runs > 0 && s.runs[runs - 1].end == token)
        ++s.runs[runs - 1].end;
      else
        s.runs[runs++] = {0, token, token + 1};
    }
    if (runs == 0) return;
    const key_list keys{tile.sequence, kv_head, nullptr, call_.block, first + count};
    const key_range range{first, static_cast<std::int32_t>(count)};
    gather(call_.keys, keys, range, s.keys);
    gather(call_.values, keys, range, s.values);
    add_dq(queries, {s.keys, s.values, call_.keys.type, range.count}, s.seen, s.runs, runs, s.gradient, s.dq);
  }

  void read_all(const token_tile& tile, std::int32_t kv_head, const gradient_rows& queries,
                const row_scratch& s) const {
    const std::int64_t last = call_.rows.place(tile.first_row + tile.tokens - 1).position;
    for (std::int64_t first = 0; first <= last; first += tile_keys)
      read_keys(tile, kv_head, first, std::min<std::int64_t>(tile_keys, last + 1 - first), queries, s,
                [](std::int32_t) { return true; });
  }

  void read_selected(const token_tile& tile, std::int32_t kv_head, const gradient_rows& queries,
                     const row_scratch& s) const {
    std::int32_t* end = s.all;
    for (std::int32_t token = 0; token < tile.tokens; ++token) {
      const std::int64_t row = tile.first_row + token;
      std::int32_t* const blocks = s.blocks + std::int64_t{token} * call_.topk;
      s.counts[token] = row_blocks(call_.ids + row * call_.id_row_stride + kv_head * call_.id_head_stride, call_.topk,
                                   visible_blocks(call_.rows.place(row), call_.block), blocks);
      s.next[token] = 0;
      end = std::copy_n(blocks, s.counts[token], end);
    }
    std::sort(s.all, end);
    end = std::unique(s.all, end);
    const std::int64_t seen = call_.rows.place(tile.first_row + tile.tokens - 1).position + 1;
    for (const std::int32_t* block = s.all; block != end; ++block) {
      const auto takes = [&](std::int32_t token) {
        const std::int32_t* const own = s.blocks + std::int64_t{token} * call_.topk;
        while (s.next[token] < s.counts[token] && own[s.next[token]] < *block) ++s.next[token];
        return s.next[token] < s.counts[token] && own[s.next[token]] == *block;
      };
      const std::int64_t begin = std::int64_t{*block} * call_.block, stop = std::min(begin + call_.block, seen);
      for (std::int64_t first = begin; first < stop; first += tile_keys)
        read_keys(tile, kv_head, first, std::min<std::int64_t>(tile_keys, stop - first), queries, s, takes);
    }
  }

  void differentiate_block(std::int64_t sequence, std::int64_t block, std::int32_t kv_head, int thread) const {
    const std::int64_t length = call_.rows.kv_lens[sequence], begin = block * call_.block;
    const std::int64_t end = std::min(length, begin + call_.block);
    for (std::int64_t first = begin; first < end; first += tile_keys)
      differentiate_keys(sequence, block, kv_head, first,
                         static_cast<std::int32_t>(std::min<std::int64_t>(tile_keys, end - first)), thread);
  }

  /// dk and dv of keys first .. first + count - 1, which are of one block.
  void differentiate_keys(std::int64_t sequence, std::int64_t block, std::int32_t kv_head, std::int64_t first,
                          std::int32_t count, int thread) const {
    carver slice = layout_.slices.of(thread);
    const key_scratch s = take_keys(slice, sizes_);
    const std::int64_t stride = padded_columns(call_.d);
    for (std::int32_t i = 0; i < count; ++i) {
      widen(call_.keys.token(sequence, kv_head, first + i), call_.keys.type, call_.d, 1.0f,
            s.keys + std::int64_t{i} * call_.d);
      widen(call_.values.token(sequence, kv_head, first + i), call_.values.type, call_.d, 1.0f,
            s.values + std::int64_t{i} * call_.d);
    }
    std::fill_n(s.dk, count * stride, 0.0f);
    std::fill_n(s.dv, count * stride, 0.0f);
    const gradient_keys keys{s.keys, s.values, count, call_.d, exponent_scale_};
    for_each_reader(sequence, block, kv_head, first, keys, s);
    const std::int64_t first_key = call_.keys.cu_seqlens_kv[sequence] + first;
    for (std::int32_t i = 0; i < count; ++i) {
      store_scaled(s.dk + i * stride, call_.scale, call_.d, call_.gradient_type,
                   call_.dk.at(first_key + i, kv_head, call_.gradient_type));
      store_scaled(s.dv + i * stride, 1.0f, call_.d, call_.gradient_type,
                   call_.dv.at(first_key + i, kv_head, call_.gradient_type));
    }
  }

  void for_each_reader(std::int64_t sequence, std::int64_t block, std::int32_t kv_head, std::int64_t first,
                       const gradient_keys& keys, const key_scratch& s) const {
    const std::int64_t begin = call_.rows.cu_seqlens_q[sequence], end = call_.rows.cu_seqlens_q[sequence + 1];
    const std::int64_t padding = call_.rows.kv_lens[sequence] - (end - begin);  // position of the first token
    if (call_.ids == nullptr) {
      const std::int64_t reads = std::clamp<std::int64_t>(first - padding, 0, end - begin);
      for (std::int64_t token = begin + reads; token < end; token += sizes_.reader_tokens)
        add_tile(
            std::min(sizes_.reader_tokens, end - token), [&](std::int64_t i) { return token + i; }, begin - padding,
            kv_head, first, keys, s);
      return;
    }
    const auto readers = layout_.readers.of(kv_head, sequence, block);
    for (std::size_t at = 0; at < readers.size(); at += static_cast<std::size_t>(sizes_.reader_tokens))
      add_tile(
          std::min(sizes_.reader_tokens, std::ssize(readers) - static_cast<std::int64_t>(at)),
          [&](std::int64_t i) { return std::int64_t{readers[at + static_cast<std::size_t>(i)]}; }, begin - padding,
          kv_head, first, keys, s);
  }

  /// What `tokens` tokens add, token(i) of them. `origin`: the row that would have position 0.
  template <class Token>
  void add_tile(std::int64_t tokens, const Token& token, std::int64_t origin, std::int32_t kv_head, std::int64_t first,
                const gradient_keys& keys, const key_scratch& s) const {
    std::int32_t count = 0;
    for (std::int64_t i = 0; i < tokens; ++i) {
      const std::int64_t row = token(i), seen = std::clamp<std::int64_t>(row - origin + 1 - first, 0, keys.count);
      for (std::int32_t member = 0; member < call_.group; ++member, ++count) {
        const std::int64_t head = std::int64_t{kv_head} * call_.group + member;
        s.queries[count] = call_.q.at(row, head);
        s.d_out[count] = call_.d_out.at(row, head);
        s.lse[count] = layout_.lse[row * heads() + head];
        s.delta[count] = layout_.delta[row * heads() + head];
        s.seen[count] = static_cast<float>(seen);
      }
    }
    // Whole vectors are computed, and nobody reads what is behind the rows.
    for (std::int64_t i = count; i < ceil_div(count, panel_columns) * panel_columns; ++i)
      s.lse[i] = s.delta[i] = s.seen[i] = 0;
    add_dk_dv(keys, {s.queries, s.d_out, call_.q.type, call_.d_out.type, {s.lse, s.delta}, s.seen, count}, s.gradient,
              s.dk, s.dv);
  }

  const backward_call& call_;
  int threads_;
  sizes sizes_;
  layout layout_;
  token_tiles tiles_;
  float exponent_scale_;  // softmax_scale * log2(e)
};

}  // namespace

void attend_backward(const backward_call& call, const run_context& context) { backward_run(call, context).run(); }

double backward_scratch_bytes(const msabench_problem& problem, int threads) {
  return layout(carver(nullptr), sizes_of(problem, threads), threads).bytes;
}

gradient_chains chains_of_backward(const msabench_problem& p) {
  const sizes s = sizes_of(p, 1);
  const std::int64_t tiles =
      s.topk > 0 ? std::int64_t{s.topk} * ceil_div(s.block, tile_keys) : ceil_div(p.max_kv_len, tile_keys);
  const std::int64_t steps = ceil_div(std::max<std::int64_t>(1, p.max_q_len), s.reader_tokens) *
                             ceil_div(s.reader_tokens * s.group, chain_terms);
  return {std::min<std::int64_t>(tile_keys, s.block) + tiles, chain_terms + steps};
}

}  // namespace msabench::cpu

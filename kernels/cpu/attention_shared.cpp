// SPDX-License-Identifier: Apache-2.0
// Tokens with blocks of their own, together: the blocks of all of them in ascending order, each loaded once.
#include <algorithm>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/tile_walk.h"

namespace msabench::cpu {
namespace {

/// The tiles of ascending blocks, as far as the last token sees them.
class block_tiles {
 public:
  block_tiles(const std::int32_t* blocks, std::int64_t count, std::int64_t block, std::int64_t seen)
      : blocks_(blocks), count_(count), block_(block), seen_(seen) {}

  /// The next one; empty behind the last one.
  key_range next() {
    for (; at_ < count_; ++at_, part_ = 0) {
      const std::int64_t begin = blocks_[at_] * block_, first = begin + part_ * tile_keys;
      const std::int64_t end = std::min({first + tile_keys, begin + block_, seen_});
      if (first >= end) continue;
      ++part_;
      return {first, static_cast<std::int32_t>(end - first)};
    }
    return {0, 0};
  }

 private:
  const std::int32_t* blocks_;
  std::int64_t count_, block_, seen_, at_ = 0, part_ = 0;
};

class shared_run {
 public:
  shared_run(const attention_caches& caches, const key_list& keys, const query_rows& rows,
             const attention_scratch& scratch)
      : rows_(rows),
        scratch_(scratch),
        block_(keys.block),
        columns_(sum_columns(caches)),
        walk_(caches, keys, scratch) {}

  void run(block_tiles tiles) {
    clear_rows(rows_.count(), columns_, scratch_.total);
    clear_rows(rows_.count(), columns_, scratch_.chunk);
    key_range range = tiles.next();
    if (range.count > 0) walk_.announce(range, 0);
    while (range.count > 0) {
      walk_.take();
      const key_range next = tiles.next();
      if (next.count > 0) walk_.announce(next, 0);
      attend(range);
      range = next;
    }
    for (std::int32_t token = 0; token < rows_.tokens; ++token) {
      if (scratch_.shared[token].tiles > 0) end_chunk(token);
    }
  }

 private:
  bool takes(std::int32_t token, const key_range& range) const {
    shared_row& row = scratch_.shared[token];
    const std::int64_t block = range.first / block_;
    while (row.next < row.count && row.blocks[row.next] < block) ++row.next;
    return row.next < row.count && row.blocks[row.next] == block && seen_in(rows_, range, token) > 0;
  }

  void attend(const key_range& range) {
    std::int32_t count = 0;
    for (std::int32_t token = 0; token < rows_.tokens; ++token) {
      if (!takes(token, range)) continue;
      if (count > 0 && scratch_.runs[count - 1].end == token) {
        ++scratch_.runs[count - 1].end;
      } else {
        scratch_.runs[count++] = {0, token, token + 1};
      }
    }
    walk_.attend(rows_, range, scratch_.runs, count, scratch_.chunk);
    for (std::int32_t run = 0; run < count; ++run) {
      for (std::int32_t token = scratch_.runs[run].first; token < scratch_.runs[run].end; ++token) {
        if (++scratch_.shared[token].tiles == scratch_.shared[token].chunk) end_chunk(token);
      }
    }
  }

  void end_chunk(std::int32_t token) {
    const std::int64_t first = std::int64_t{token} * rows_.group;
    const partial_rows chunk = rows_from(scratch_.chunk, first, columns_);
    merge_rows(chunk, rows_.group, columns_, rows_from(scratch_.total, first, columns_));
    clear_rows(rows_.group, columns_, chunk);
    scratch_.shared[token].tiles = 0;
  }

  const query_rows& rows_;
  attention_scratch scratch_;
  std::int64_t block_, columns_;
  tile_walk walk_;
};

}  // namespace

void attend_shared(const attention_caches& caches, const key_list& keys, const query_rows& rows,
                   const attention_scratch& scratch) {
  // All blocks of the tokens, each once.
  std::int32_t* end = scratch.all_blocks;
  for (std::int32_t token = 0; token < rows.tokens; ++token) {
    end = std::copy_n(scratch.shared[token].blocks, scratch.shared[token].count, end);
  }
  std::sort(scratch.all_blocks, end);
  const std::int64_t count = std::unique(scratch.all_blocks, end) - scratch.all_blocks;
  shared_run(caches, keys, rows, scratch).run({scratch.all_blocks, count, keys.block, keys.count});
}

}  // namespace msabench::cpu

// SPDX-License-Identifier: Apache-2.0
// The cache of a case cut into tiles, in the order of memory: (page, KV head) of a pool, or the keys of one block of a
// contiguous sequence. Says of each what it holds (see cache_fill.h).
#pragma once

#include <cstdint>
#include <vector>

#include "inputs/cache_fill.h"

namespace msabench {

enum class row_state { value, far, poison };

// One key of one KV head: `d` values.
struct cache_row {
  key_place place;          // of poison: unset
  std::int64_t offset = 0;  // elements from the tensor's first
  row_state state = row_state::poison;
};

struct cache_tile {
  std::int64_t number = 0;
  std::int64_t first_row = 0;        // of the packed tensor: rows are numbered in the order of the generator's stream
  std::uint64_t begin = 0, end = 0;  // bytes of the region, gaps behind rows included
  std::vector<cache_row> rows;
};

class cache_tiles {
 public:
  cache_tiles(const cache_contents& job, const buffer& cache);

  std::int64_t count() const { return static_cast<std::int64_t>(state_.size()); }
  bool filled(std::int64_t tile) const { return state_[static_cast<std::size_t>(tile)] != tile_state::hole; }
  void describe(std::int64_t tile, cache_tile& out) const;
  std::uint64_t end() const;  // bytes of the region that tiles cover
  std::vector<extent> contents(std::uint64_t region_bytes) const;

 private:
  enum class tile_state : std::uint8_t { hole, poison, open };

  void plan_pages();
  void plan_blocks();
  void describe_page(std::int64_t tile, cache_tile& out) const;
  void describe_block(std::int64_t tile, cache_tile& out) const;
  bool page_is_read(std::int64_t page, std::int64_t head) const;
  row_state state_of(const key_place& at) const;
  std::uint64_t bytes(std::int64_t elements) const;

  const cache_contents& job_;
  const buffer& cache_;
  std::int64_t heads_, page_size_ = 0;
  bool small_;  // every tile is filled
  std::vector<tile_state> state_;
  struct block_tile {
    std::int64_t sequence = 0, first_key = 0, keys = 0;  // sequence -1: rows past the last key
  };
  std::vector<block_tile> blocks_;  // contiguous only
};

}  // namespace msabench

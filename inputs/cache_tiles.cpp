// SPDX-License-Identifier: Apache-2.0
#include "inputs/cache_tiles.h"

#include <algorithm>

#include "inputs/extent_list.h"
#include "inputs/truncated_pages.h"

namespace msabench {

namespace {

constexpr std::uint64_t small_cache_bytes = std::uint64_t{64} << 20;

// The whole system pages of holes become unmapped: there a wrong address would read zeros, and zeros may go unseen.
// Each costs the process that maps it an entry of a table of some ten thousand; beyond that they stay holes.
std::vector<extent> without_access_to_holes(const std::vector<extent>& all) {
  constexpr std::uint64_t largest_system_page = 64 << 10;
  constexpr std::size_t most = 10'000;
  if (all.size() > most) return all;
  std::vector<extent> out;
  const auto add = [&](std::uint64_t begin, std::uint64_t end, extent::kind holds) {
    if (begin < end) out.push_back({begin, end, holds});
  };
  for (const extent& e : all) {
    const std::uint64_t begin = (e.begin + largest_system_page - 1) / largest_system_page * largest_system_page;
    const std::uint64_t end = e.end / largest_system_page * largest_system_page;
    if (e.holds != extent::kind::hole || begin >= end) {
      out.push_back(e);
      continue;
    }
    add(e.begin, begin, extent::kind::hole);
    add(begin, end, extent::kind::unmapped);
    add(end, e.end, extent::kind::hole);
  }
  return out;
}

}  // namespace

cache_tiles::cache_tiles(const cache_contents& job, const buffer& cache)
    : job_(job),
      cache_(cache),
      heads_(job.heads),
      page_size_(job.agreed.page_size),
      small_(cache.region->bytes() <= small_cache_bytes) {
  job.pool != nullptr ? plan_pages() : plan_blocks();
}

std::uint64_t cache_tiles::bytes(std::int64_t elements) const {
  return static_cast<std::uint64_t>(elements * size_bytes(cache_.desc.type));
}

// Of a key below N_b in an open tile.
row_state cache_tiles::state_of(const key_place& at) const {
  if (job_.names_places) return row_state::value;
  const std::int64_t block = at.key / job_.agreed.block;
  const bool read = at.key - block * job_.agreed.block < job_.keys_read(at.sequence, at.head, block);
  return read ? row_state::value : row_state::far;
}

bool cache_tiles::page_is_read(std::int64_t page, std::int64_t head) const {
  const std::int64_t block_size = job_.agreed.block;
  for (const auto& holder : job_.pool->holders(page)) {
    const std::int64_t first = holder.column * page_size_;
    const std::int64_t last = std::min(first + page_size_, job_.rows.at(holder.sequence).kv_len) - 1;
    for (std::int64_t block = first / block_size; block <= last / block_size; ++block) {
      const std::int64_t begin = std::max(first, block * block_size);
      if (begin < block * block_size + job_.keys_read(holder.sequence, head, block)) return true;
    }
  }
  return false;
}

void cache_tiles::plan_pages() {
  const page_pool& pool = *job_.pool;
  const std::int64_t pages = pool.pages();
  state_.assign(static_cast<std::size_t>(pages * heads_), small_ ? tile_state::poison : tile_state::hole);
  const auto state = [&](std::int64_t page, std::int64_t head) -> tile_state& {
    return state_[static_cast<std::size_t>(page * heads_ + head)];
  };
  const auto at_least_poison = [&](std::int64_t page, std::int64_t head) {
    if (page >= 0 && page < pages && state(page, head) == tile_state::hole) state(page, head) = tile_state::poison;
  };
  for (std::int64_t head = 0; head < heads_; ++head) {
    at_least_poison(0, head);
    at_least_poison(pages - 1, head);
    for (std::int64_t page = 0; page < pages; ++page) {
      if (!page_is_read(page, head)) continue;
      state(page, head) = tile_state::open;
      at_least_poison(page - 1, head);
      at_least_poison(page + 1, head);
      for (const auto& holder : pool.holders(page))
        for (const std::int64_t column : {holder.column - 1, holder.column + 1})
          if (column >= 0 && column < pool.columns(holder.sequence))
            at_least_poison(pool.entry(holder.sequence, column), head);
      if (small_) continue;
      for (const std::int64_t other : truncated_pages(page, cache_.desc.strides[0], size_bytes(cache_.desc.type)))
        for (std::int64_t each = 0; each < heads_; ++each) at_least_poison(other, each);
    }
  }
  if (!job_.names_places) return;
  for (std::int64_t page = 0; page < pages; ++page)
    for (std::int64_t head = 0; head < heads_; ++head)
      if (state(page, head) == tile_state::poison && !pool.holders(page).empty()) state(page, head) = tile_state::open;
}

void cache_tiles::plan_blocks() {
  const std::int64_t block_size = job_.agreed.block;
  for (std::int64_t b = 0; b < job_.rows.size(); ++b) {
    const std::int64_t kv_len = job_.rows.at(b).kv_len;
    const std::int64_t blocks = (kv_len + block_size - 1) / block_size;
    const auto read = [&](std::int64_t block) {
      if (block < 0 || block >= blocks) return false;
      for (std::int64_t head = 0; head < heads_; ++head)
        if (job_.keys_read(b, head, block) > 0) return true;
      return false;
    };
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::int64_t first = block * block_size;
      blocks_.push_back({b, first, std::min(block_size, kv_len - first)});
      const bool filled =
          small_ || read(block) || read(block - 1) || read(block + 1) || block == 0 || block == blocks - 1;
      state_.push_back(filled ? tile_state::open : tile_state::hole);
    }
  }
  // Under option slack the tensor is longer than the sequences together.
  const std::int64_t rest = cache_.desc.shape[0] - job_.rows.total_kv();
  if (rest > 0) {
    blocks_.push_back({-1, job_.rows.total_kv(), rest});
    state_.push_back(tile_state::poison);
  }
}

void cache_tiles::describe(std::int64_t tile, cache_tile& out) const {
  out.number = tile;
  out.rows.clear();
  job_.pool != nullptr ? describe_page(tile, out) : describe_block(tile, out);
}

void cache_tiles::describe_page(std::int64_t tile, cache_tile& out) const {
  const auto& strides = cache_.desc.strides;
  const std::int64_t page = tile / heads_, head = tile % heads_;
  const std::int64_t begin = page * strides[0] + head * strides[1];
  out.first_row = tile * page_size_;
  out.begin = bytes(begin);
  out.end = bytes(head + 1 < heads_ ? begin + strides[1] : (page + 1) * strides[0]);
  // The gap behind the last tile isn't part of the tensor.
  out.end = std::min(out.end, cache_.region->bytes());
  const bool open = state_[static_cast<std::size_t>(tile)] == tile_state::open;
  const auto holders = job_.pool->holders(page);
  for (std::int64_t token = 0; token < page_size_; ++token) {
    cache_row row;
    row.offset = begin + token * strides[2];
    for (const auto& holder : holders) {
      const key_place at{holder.sequence, holder.column * page_size_ + token, head};
      if (!open || at.key >= job_.rows.at(at.sequence).kv_len || row.state == row_state::value) continue;
      row.place = at;
      row.state = state_of(at);
    }
    out.rows.push_back(row);
  }
}

void cache_tiles::describe_block(std::int64_t tile, cache_tile& out) const {
  const auto& strides = cache_.desc.strides;
  const block_tile& block = blocks_[static_cast<std::size_t>(tile)];
  const std::int64_t first =
      block.sequence < 0 ? block.first_key : job_.rows.first_key(block.sequence) + block.first_key;
  out.first_row = first * heads_;
  out.begin = bytes(first * strides[0]);
  out.end = std::min(bytes((first + block.keys) * strides[0]), cache_.region->bytes());
  for (std::int64_t i = 0; i < block.keys; ++i)
    for (std::int64_t head = 0; head < heads_; ++head) {
      cache_row row;
      row.offset = (first + i) * strides[0] + head * strides[1];
      if (block.sequence >= 0) {
        row.place = {block.sequence, block.first_key + i, head};
        row.state = state_of(row.place);
      }
      out.rows.push_back(row);
    }
}

std::uint64_t cache_tiles::end() const {
  return std::min(bytes(cache_.desc.shape[0] * cache_.desc.strides[0]), cache_.region->bytes());
}

std::vector<extent> cache_tiles::contents(std::uint64_t region_bytes) const {
  extent_list list;
  cache_tile tile;
  for (std::int64_t i = 0; i < count(); ++i) {
    if (!filled(i)) continue;
    describe(i, tile);
    // Poison stands behind the values of a tile, if at all: what lies past N_b.
    std::uint64_t end_of_values = tile.begin;
    for (const cache_row& row : tile.rows)
      if (row.state != row_state::poison)
        end_of_values = &row == &tile.rows.back() ? tile.end : bytes((&row + 1)->offset);
    list.add(tile.begin, end_of_values, extent::kind::filled);
    list.add(end_of_values, tile.end, extent::kind::poisoned);
  }
  auto all = list.finish(region_bytes, extent::kind::poisoned);
  return job_.definition.options.pool_pages != 0 ? without_access_to_holes(all) : all;
}

}  // namespace msabench

// SPDX-License-Identifier: Apache-2.0
#include "reference/key_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "reference/tile_kernels.h"

namespace msabench::reference {
namespace {

std::vector<std::int64_t> numbers_of(const tensor_view& t) {
  std::vector<std::int64_t> numbers;
  for (std::int64_t i = 0; i < t.desc.elements(); ++i) numbers.push_back(t.int_at(i));
  return numbers;
}

}  // namespace

std::span<const std::int64_t> key_map::lists::operator[](std::int64_t i) const {
  const auto at = static_cast<std::size_t>(i);
  return std::span(entries).subspan(static_cast<std::size_t>(begin[at]),
                                    static_cast<std::size_t>(begin[at + 1] - begin[at]));
}

key_map::key_map(const problem& p, const tensor_view& ids, const tensor_view& cu_seqlens_q, const tensor_view& kv_lens,
                 const tensor_view& cu_seqlens_kv)
    : places_(cu_seqlens_q, kv_lens), groups_(p.hkv), block_(p.block), all_(ids.desc.shape.empty()) {
  if (p.paged()) throw suite_error("training operators take contiguous keys");
  if (p.hkv < 1 || p.hq < 1 || p.hq % p.hkv != 0) throw suite_error("the problem has no valid heads");
  if (all_) block_ = tile_keys;
  if (block_ < 1) throw suite_error("the problem has no block size");
  if (cu_seqlens_kv.desc.shape != cu_seqlens_q.desc.shape || cu_seqlens_kv.int_at(0) != 0)
    throw suite_error("cu_seqlens_kv must begin with 0 and have as many entries as cu_seqlens_q");
  first_row_ = numbers_of(cu_seqlens_q);
  first_key_ = numbers_of(cu_seqlens_kv);
  lay_out_tiles(kv_lens);
  if (all_) return;
  if (ids.desc.shape.size() != 3 || ids.desc.shape[0] < rows() || ids.desc.shape[1] != groups_)
    throw suite_error("ids must be [T,Hkv,k]");
  read_ids(ids);
}

void key_map::lay_out_tiles(const tensor_view& kv_lens) {
  first_block_ = {0};
  for (std::int64_t b = 0; b + 1 < static_cast<std::int64_t>(first_key_.size()); ++b) {
    const std::int64_t kv_len = kv_lens.int_at(b);
    if (first_key(b + 1) - first_key(b) != kv_len || kv_len < 0)
      throw suite_error(fmt::format("cu_seqlens_kv gives sequence {} {} keys, kv_lens {}", b,
                                    first_key(b + 1) - first_key(b), kv_len));
    const std::int64_t blocks = (kv_len + block_ - 1) / block_;
    first_block_.push_back(first_block_.back() + blocks);
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::int64_t end = std::min((block + 1) * block_, kv_len);
      for (std::int64_t first = block * block_; first < end; first += tile_keys)
        tiles_.push_back({b, block, first, std::min(tile_keys, end - first)});
    }
  }
}

void key_map::read_ids(const tensor_view& ids) {
  std::vector<std::int64_t> count(static_cast<std::size_t>(first_block_.back() * groups_));
  blocks_.begin = {0};
  for (std::int64_t row = 0; row < rows(); ++row)
    for (std::int64_t group = 0; group < groups_; ++group) {
      const std::int64_t visible = places_.visible_blocks(row, block_), begin = blocks_.begin.back();
      for (std::int64_t slot = 0; slot < ids.desc.shape[2]; ++slot) {
        const std::int64_t id = ids.int_at(row, group, slot);
        if (id >= 0 && id < visible) blocks_.entries.push_back(id);
      }
      std::sort(blocks_.entries.begin() + begin, blocks_.entries.end());
      blocks_.entries.erase(std::unique(blocks_.entries.begin() + begin, blocks_.entries.end()), blocks_.entries.end());
      blocks_.begin.push_back(static_cast<std::int64_t>(blocks_.entries.size()));
      for (const std::int64_t id : blocks_[row * groups_ + group])
        ++count[static_cast<std::size_t>(list_of(place(row).sequence, id, group))];
    }
  readers_.begin = {0};
  for (const std::int64_t n : count) readers_.begin.push_back(readers_.begin.back() + n);
  readers_.entries.resize(blocks_.entries.size());
  std::vector<std::int64_t> next(readers_.begin);
  for (std::int64_t row = 0; row < rows(); ++row)
    for (std::int64_t group = 0; group < groups_; ++group)
      for (const std::int64_t id : blocks_[row * groups_ + group]) {
        std::int64_t& at = next[static_cast<std::size_t>(list_of(place(row).sequence, id, group))];
        readers_.entries[static_cast<std::size_t>(at++)] = row;
      }
}

void key_map::keys_of(std::int64_t row, std::int64_t group, std::vector<std::int64_t>& keys) const {
  const std::int64_t visible = places_.visible_keys(row);
  keys.clear();
  if (all_) {
    keys.resize(static_cast<std::size_t>(visible));
    std::iota(keys.begin(), keys.end(), 0);
    return;
  }
  for (const std::int64_t block : blocks_[row * groups_ + group])
    for (std::int64_t key = block * block_; key < std::min((block + 1) * block_, visible); ++key) keys.push_back(key);
}

void key_map::rows_of(const tile& t, std::int64_t group, std::vector<std::int64_t>& rows) const {
  rows.clear();
  const auto add = [&](std::int64_t row) {
    if (visible_in(t, row) > 0) rows.push_back(row);
  };
  if (!all_) {
    for (const std::int64_t row : readers_[list_of(t.sequence, t.block, group)]) add(row);
    return;
  }
  const auto sequence = static_cast<std::size_t>(t.sequence);
  for (std::int64_t row = first_row_[sequence]; row < first_row_[sequence + 1]; ++row) add(row);
}

}  // namespace msabench::reference

// SPDX-License-Identifier: Apache-2.0
// Which keys the rows of a contiguous ragged batch read, seen from the rows and from the keys: what the training
// operators (docs/contract.md section 7) sum over, once for gradients of queries, once for gradients of keys.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/problem.h"
#include "core/tensor_view.h"
#include "reference/rows.h"

namespace msabench::reference {

class key_map {
 public:
  // `ids` [T][Hkv][k], in any form: the set of distinct visible blocks counts. Absent (no shape): every visible key.
  // suite_error for lengths that contradict each other, a paged problem and ids of another shape.
  key_map(const problem& p, const tensor_view& ids, const tensor_view& cu_seqlens_q, const tensor_view& kv_lens,
          const tensor_view& cu_seqlens_kv);

  std::int64_t rows() const { return places_.total_rows(); }  // T
  std::int64_t keys() const { return first_key_.back(); }     // N
  std::int64_t groups() const { return groups_; }             // Hkv
  const row_place& place(std::int64_t row) const { return places_[row]; }
  // Row of position 0 of a sequence in k and v.
  std::int64_t first_key(std::int64_t sequence) const { return first_key_[static_cast<std::size_t>(sequence)]; }

  // Positions of the selected visible keys of (row, group), ascending.
  void keys_of(std::int64_t row, std::int64_t group, std::vector<std::int64_t>& keys) const;

  // At most 128 keys of one block.
  struct tile {
    std::int64_t sequence = 0, block = 0, first = 0, count = 0;  // first: position in the sequence
  };
  const std::vector<tile>& tiles() const { return tiles_; }
  // Rows that select the tile's block and see some of its keys, ascending.
  void rows_of(const tile& t, std::int64_t group, std::vector<std::int64_t>& rows) const;
  // Of them, `row` sees the keys below this offset into the tile.
  std::int64_t visible_in(const tile& t, std::int64_t row) const { return places_.visible_keys(row) - t.first; }

 private:
  struct lists {
    std::vector<std::int64_t> begin;  // one entry more than lists
    std::vector<std::int64_t> entries;
    std::span<const std::int64_t> operator[](std::int64_t i) const;
  };
  void lay_out_tiles(const tensor_view& kv_lens);
  void read_ids(const tensor_view& ids);
  std::int64_t list_of(std::int64_t sequence, std::int64_t block, std::int64_t group) const {
    return (first_block_[static_cast<std::size_t>(sequence)] + block) * groups_ + group;
  }

  row_map places_;
  std::int64_t groups_ = 0, block_ = 0;
  bool all_ = false;
  std::vector<std::int64_t> first_row_, first_key_, first_block_;  // by sequence, one entry more than sequences
  std::vector<tile> tiles_;
  lists blocks_;   // of (row, group)
  lists readers_;  // rows of (sequence, block, group)
};

}  // namespace msabench::reference

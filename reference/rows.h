// SPDX-License-Identifier: Apache-2.0
// Which sequence and position a query row has (docs/contract.md section 1), and where a key is stored.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/problem.h"
#include "core/tensor_view.h"

namespace msabench::reference {

struct row_place {
  std::int64_t sequence = 0;
  std::int64_t position = -1;  // pos(i) = N_b - q_b + row inside b; below 0: padding row
  std::int64_t kv_len = 0;     // N_b
};

// Without kv_lens (no shape) the sequences are segments of a vision tower: as many keys as rows, all of which every row
// sees, as if it were the last one.

// Place of one row, without a map of all of them. suite_error for a row that is not below T.
row_place place_of(const tensor_view& cu_seqlens_q, const tensor_view& kv_lens, std::int64_t row);
// Blocks that a row at this place sees: own + 1, or 0 for an empty row.
std::int64_t visible_blocks(const row_place& place, std::int64_t block);
// Keys that it sees: min(position + 1, kv_len), at least 0.
std::int64_t visible_keys(const row_place& place);
// Ascending positions of the visible keys of the blocks that `ids` names: the set of distinct b in 0 .. own counts, in
// any order, and everything else is ignored. Overwrites `keys`.
void find_block_keys(std::span<const std::int32_t> ids, const row_place& place, std::int64_t block,
                     std::vector<std::int64_t>& keys);

// Lengths of a batch; one entry of `rows` per query row below T = cu_seqlens_q[B].
class row_map {
 public:
  // suite_error if cu_seqlens_q decreases or has no entry more than kv_lens.
  row_map(const tensor_view& cu_seqlens_q, const tensor_view& kv_lens);
  std::int64_t total_rows() const { return static_cast<std::int64_t>(rows_.size()); }
  // suite_error for a row that is not below T.
  const row_place& operator[](std::int64_t row) const;

  std::int64_t visible_blocks(std::int64_t row, std::int64_t block) const {
    return reference::visible_blocks((*this)[row], block);
  }
  std::int64_t visible_keys(std::int64_t row) const { return reference::visible_keys((*this)[row]); }

 private:
  std::vector<row_place> rows_;
};

// Element offset of the row of `dim` values of (sequence, key j, kv head r) in a contiguous or paged cache. An index
// cache has no head axis: its head is ignored. Holds references: problem and views must outlive it.
class cache_map {
 public:
  cache_map(const problem& p, const tensor_view& cache, const tensor_view& block_table,
            const tensor_view& cu_seqlens_kv);
  std::int64_t offset(std::int64_t sequence, std::int64_t key, std::int64_t head) const;

 private:
  const problem& p_;
  const tensor_view &cache_, &table_, &cu_;
};

}  // namespace msabench::reference

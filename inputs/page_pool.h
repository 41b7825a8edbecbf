// SPDX-License-Identifier: Apache-2.0
// Which page of the pool holds which tokens of which sequence.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/case.h"
#include "core/problem.h"
#include "inputs/batch.h"

namespace msabench {

class page_pool {
 public:
  // A random permutation of the pool, under option pool of its upper half: a number or an offset that lost its upper
  // bits leads into the lower one. Page 0 belongs to nobody where the pool has a page to spare: it is what a cleared
  // table or an index of -1 clamped to 0 points at. `share`: of the two sequences with the longest history one uses the
  // other's pages as far as both hold history (a prefix cache).
  // `table` is the block table that tells of it: each has an order of its own.
  page_pool(const case_spec& c, const problem& p, const batch& rows, bool share, slot table = slot::block_table);

  struct holder {
    std::int64_t sequence = 0, column = 0;  // the page holds tokens column * page_size ... of the sequence
  };
  std::int64_t pages() const { return static_cast<std::int64_t>(first_holder_.size()) - 1; }
  std::span<const holder> holders(std::int64_t page) const;

  // Entry of the block table; huge where the sequence has no tokens.
  std::int32_t entry(std::int64_t sequence, std::int64_t column) const;
  std::int64_t columns(std::int64_t sequence) const;  // that hold tokens

 private:
  void index_holders(std::int64_t pages);

  std::vector<std::vector<std::int32_t>> table_;  // per sequence
  std::vector<std::size_t> first_holder_;
  std::vector<holder> holders_;
};

}  // namespace msabench

// SPDX-License-Identifier: Apache-2.0
// The blocks that the rows of a case read: those that it selects where ids are an input, and how these are written down
// for an implementation; all that it sees where there are none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/case.h"
#include "core/generator.h"
#include "core/problem.h"
#include "inputs/batch.h"

namespace msabench {

// Is block b of a row with own block `own` forced: b < init or b > own - local.
inline bool is_forced(std::int64_t b, std::int64_t own, std::int64_t local, std::int64_t init) {
  return b < init || b > own - local;
}

class selection {
 public:
  // Chosen as `select` would: all visible blocks up to topk, else the forced ones and distinct others at random, anew
  // for every (row, KV head); every row of a sequence the same where `shared`, as far as it sees them. Of the variants
  // of `random`, shared64 has the same blocks in 64 neighbouring rows of a sequence, and realistic has the first block,
  // the two before the own one, two on a stripe of the head, and half of what is left as 64 neighbours share it. Under
  // option short or lenient any number of these. Keeps a reference to `rows`.
  selection(const case_spec& c, const problem& p, const batch& rows, bool shared);

  std::int64_t heads() const { return heads_; }
  std::int64_t most_blocks() const { return topk_; }  // of a row
  // Selected visible blocks of (row, KV head), ascending, unique.
  std::span<const std::int32_t> blocks(std::int64_t row, std::int64_t head) const;
  // Of the sequence's last row; empty for a sequence without rows.
  std::span<const std::int32_t> last_blocks(std::int64_t sequence, std::int64_t head) const;

  // How many keys of block b of (sequence, head) some row both selects and sees: the first so many; 0 where no row
  // selects b.
  std::int64_t keys_read(std::int64_t sequence, std::int64_t head, std::int64_t b) const;

  // The topk ids of (row, head) as handed to an implementation, in the order and form that the problem asks for.
  std::vector<std::int32_t> written(std::int64_t row, std::int64_t head) const;

 private:
  std::size_t cell(std::int64_t row, std::int64_t head) const { return static_cast<std::size_t>(row * heads_ + head); }
  std::uint32_t word(const stream& from, std::int64_t row, std::int64_t head, std::int64_t i) const;
  std::vector<std::int32_t> choose(std::int64_t row, std::int64_t head) const;
  std::vector<std::int32_t> choose_realistic(std::int64_t row, std::int64_t head) const;
  std::int64_t last_of_neighbours(std::int64_t row) const;
  std::vector<std::int32_t> choose_like(std::span<const std::int32_t> model, std::int64_t row) const;
  void thin_out(std::vector<std::int32_t>& chosen, std::int64_t row, std::int64_t head) const;
  void count_keys_read();
  void add_invalid_ids(std::vector<std::int32_t>& ids, std::int64_t row, std::int64_t head) const;

  const batch& rows_;
  problem problem_;
  bool short_rows_, lenient_;
  std::int64_t heads_, topk_;
  stream ids_stream_, form_stream_, order_stream_;
  std::vector<std::int32_t> ids_;        // [T, heads, topk], of which the first counts_ are meant
  std::vector<std::int32_t> counts_;     // [T, heads]
  std::vector<std::size_t> first_;       // where a sequence begins in keys_read_
  std::vector<std::int32_t> keys_read_;  // per sequence [heads, its blocks]
};

}  // namespace msabench

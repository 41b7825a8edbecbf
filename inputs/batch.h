// SPDX-License-Identifier: Apache-2.0
// The sequences of a case as its rows see them (docs/contract.md, section 1).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/case.h"

namespace msabench {

struct batch_row {
  std::int64_t sequence = 0;
  std::int64_t position = -1;  // below 0: a padding row. Of vision operators the last one of the segment: all is seen
  std::int64_t kv_len = 0;

  bool empty() const { return position < 0; }
  std::int64_t own(std::int64_t block) const { return position / block; }  // not of an empty row
  std::int64_t visible_blocks(std::int64_t block) const { return empty() ? 0 : own(block) + 1; }
};

class batch {
 public:
  explicit batch(const case_spec& c);

  std::span<const sequence> sequences() const { return sequences_; }
  std::int64_t size() const { return static_cast<std::int64_t>(sequences_.size()); }  // B
  std::span<const batch_row> rows() const { return rows_; }
  std::int64_t total_q() const { return static_cast<std::int64_t>(rows_.size()); }  // T
  std::int64_t total_kv() const { return first_key_.back(); }                       // N
  const sequence& at(std::int64_t b) const { return sequences_[static_cast<std::size_t>(b)]; }
  // Row and packed key at which sequence b begins; b may be B.
  std::int64_t first_row(std::int64_t b) const { return first_row_[static_cast<std::size_t>(b)]; }
  std::int64_t first_key(std::int64_t b) const { return first_key_[static_cast<std::size_t>(b)]; }

 private:
  std::vector<sequence> sequences_;
  std::vector<batch_row> rows_;
  std::vector<std::int64_t> first_row_, first_key_;
};

}  // namespace msabench

// SPDX-License-Identifier: Apache-2.0
// Problems of the M3 shape at any length, in bf16 and with pages out of order: what the reference's speed and size are
// measured on. Values come from the generator of the suite's inputs, filled by all threads.
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor_view.h"
#include "reference/attend.h"
#include "reference/dense.h"
#include "reference/msa.h"

namespace msabench::reference::testing {

struct m3_shape {
  std::int64_t q_len = 1, kv_len = 0;  // one sequence; its last q_len tokens are of the call
  std::int32_t hq = 64, hkv = 4;
  std::int32_t d = 128, block = 128, topk = 16;
};

class m3_problem {
 public:
  explicit m3_problem(const m3_shape& shape);
  // Views refer to the object's own memory, which copies would not share.
  m3_problem(const m3_problem&) = delete;
  m3_problem& operator=(const m3_problem&) = delete;

  dense_inputs for_dense() const;
  // Ids: the last topk visible blocks of each row, which are all of them up to topk blocks.
  attend_inputs for_attend() const;
  // One index head of 128 dims for each KV head.
  msa_inputs for_msa() const;

  std::vector<std::int64_t> all_rows() const;
  // Of keys and values, and of index keys.
  std::int64_t cache_bytes() const { return 2 * (std::ssize(k_) + std::ssize(v_)); }
  std::int64_t index_cache_bytes() const { return 2 * std::ssize(k_idx_); }

 private:
  problem p_;
  std::vector<std::uint16_t> q_, k_, v_, q_idx_, k_idx_;
  std::vector<std::int32_t> table_, table_idx_, ids_, cu_q_, lens_;
};

// Peak of the process's memory since the last call of reset_peak(), and what it holds now; Linux.
void reset_peak();
std::int64_t peak_bytes();
std::int64_t resident_bytes();

}  // namespace msabench::reference::testing

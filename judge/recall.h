// SPDX-License-Identifier: Apache-2.0
// K6 of msa, reported: how much of what the main branch would have attended to the index branch has found. A property of
// the inputs' index branch more than of an implementation, so nothing rests on it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "judge/judge.h"
#include "reference/attend.h"
#include "reference/rows.h"

namespace msabench::judge {

// For rows with more visible blocks than are selected, I* is the k blocks of most softmax mass over all visible keys,
// summed over the heads of the group. Block recall = |I* and I| / |I*|, score recall = mass of I* and I / mass of I*.
class recall {
 public:
  // Weighs at most eight of `rows`, as far as they are affordable. Every visible key must hold a value.
  recall(const reference::attend_inputs& in, const reference::row_map& map, std::span<const std::int64_t> rows);
  bool empty() const { return masses_.empty(); }

  // "K6r" (blocks) and "K6s" (scores), means over rows x KV heads. ids [T,Hkv,k].
  std::vector<check_result> check(const tensor_view& ids) const;

 private:
  struct block_masses {
    std::int64_t row = 0, kv_head = 0;
    std::vector<double> mass;            // per visible block
    std::vector<std::int64_t> heaviest;  // I*
  };
  std::vector<block_masses> masses_;
};

}  // namespace msabench::judge

// SPDX-License-Identifier: Apache-2.0
// A small `select` case made by hand.
#pragma once

#include <vector>

#include "attend_world.h"

namespace msabench::judge::test {

class select_world {
 public:
  // Decode rows: row i sees visible[i] blocks, 0 for padding. scores[row * heads + head][block].
  select_world(std::vector<std::int64_t> visible, std::int32_t heads, std::int32_t topk,
               std::vector<std::vector<double>> scores, std::int32_t local_blocks = 1, std::int32_t init_blocks = 0);

  judge::subject subject() const;
  std::vector<std::int64_t> all_rows() const;
  // Writes the oracle's choice.
  void answer();
  void set_ids(std::int64_t row, std::int64_t head, const std::vector<std::int32_t>& list);
  launch outputs() const;
  std::vector<check_result> checks() const;

  problem agreed;
  profile delivers;
  std::vector<perturbation> targets;
  tensor scores, ids, cu_q, kv_lens;

 private:
  std::vector<std::int64_t> visible_;
};

}  // namespace msabench::judge::test

// SPDX-License-Identifier: Apache-2.0
// A small select problem with its tensors, and its result by sorting every row.
#pragma once

#include <msabench/plugin.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/kernels/buffer.h"
#include "tests/kernels/plugin_session.h"

namespace msabench::plugin_test {

struct select_shape {
  std::int32_t hkv = 2, block = 8, topk = 4, local_blocks = 1, init_blocks = 0;
  std::vector<std::pair<std::int32_t, std::int32_t>> sequences = {{4, 75}, {0, 0}, {1, 0}, {2, 9}, {3, 128}};
  std::int64_t spare_rows = 2;
};

class small_select {
 public:
  /// Scores are random, 64 different values, so that ties are common.
  explicit small_select(select_shape shape, unsigned seed = 1);

  select_shape shape;
  msabench_problem problem;
  buffer scores, ids, cu_seqlens_q, kv_lens;

  arguments args() const;
  std::int64_t tokens() const { return tokens_; }
  /// own + 1
  std::int64_t visible(std::int64_t row) const;
  std::vector<std::int32_t> expected(std::int64_t row, std::int64_t head) const;
  std::vector<std::int32_t> got(std::int64_t row, std::int64_t head) const;
  std::optional<std::string> fault() const;

 private:
  std::int64_t tokens_ = 0;
};

}  // namespace msabench::plugin_test

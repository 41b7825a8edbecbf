// SPDX-License-Identifier: Apache-2.0
// A small problem of the index branch with its tensors, for score and index, and its results by double loops.
#pragma once

#include <msabench/plugin.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/kernels/buffer.h"
#include "tests/kernels/plugin_session.h"

namespace msabench::plugin_test {

struct index_shape {
  std::int32_t heads = 2, di = 24, block = 8, topk = 4, local_blocks = 1, init_blocks = 0;
  std::int32_t page_size = 0;  // 0 = contiguous
  msabench_dtype type = fp32_type;
  std::vector<std::pair<std::int32_t, std::int32_t>> sequences = {{4, 75}, {0, 0}, {1, 0}, {2, 9}, {3, 128}};
  std::int64_t spare_rows = 2;
  double index_scale = 0;  // 0 = 1 / sqrt(di)
};

class small_index {
 public:
  explicit small_index(msabench_op op, index_shape shape, unsigned seed = 1);

  index_shape shape;
  msabench_problem problem;
  buffer q_idx, k_idx, scores, ids, lse_idx, cu_seqlens_q, kv_lens, cu_seqlens_kv, block_table_idx;

  arguments args() const;
  std::int64_t tokens() const { return tokens_; }
  /// Writes channel c of key j of sequence b.
  void set_key(std::int64_t b, std::int64_t j, std::int64_t c, double value);
  std::optional<std::string> fault() const;

 private:
  struct place {
    std::int64_t sequence, position;
  };
  place place_of(std::int64_t row) const;
  double key(std::int64_t b, std::int64_t j, std::int64_t c) const;
  double score_of(std::int64_t row, std::int64_t head, std::int64_t j) const;
  std::vector<double> block_scores(std::int64_t row, std::int64_t head) const;
  void make_lengths();
  void make_keys();
  std::optional<std::string> score_fault(std::int64_t row, std::int64_t head) const;
  std::optional<std::string> index_fault(std::int64_t row, std::int64_t head) const;
  std::string place_text(std::int64_t row, std::int64_t head) const;

  std::int64_t tokens_ = 0, keys_ = 0, longest_ = 0;
};

}  // namespace msabench::plugin_test

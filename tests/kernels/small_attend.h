// SPDX-License-Identifier: Apache-2.0
// A small attend, dense or vit_attend problem with its tensors, and its result by double loops over the definition:
// O = softmax(scale <q,k>) v over the keys j with j <= pos and j < N_b, for attend of the blocks in ids; for vit_attend
// over all keys of the token's segment.
#pragma once

#include <msabench/plugin.h>

#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/kernels/buffer.h"
#include "tests/kernels/plugin_session.h"

namespace msabench::plugin_test {

struct attend_shape {
  std::int32_t hq = 4, hkv = 2, d = 16, block = 8, topk = 3;
  std::int32_t page_layout = 0, page_size = 0;
  msabench_dtype type = fp32_type;
  std::vector<std::pair<std::int32_t, std::int32_t>> sequences = {
      {5, 37}, {0, 0}, {3, 9}, {1, 64}};  // query, kv tokens
  msabench_choice form = MSABENCH_FORM_EXACT;
  bool padded_strides = false;
  std::int64_t spare_rows = 2;  // rows of the token tensors past T
  double softmax_scale = 0;     // 0 = 1 / sqrt(d)
  bool dense = false;           // no ids: every visible key
  bool segments = false;        // vit_attend: the same of the whole sequence, of which every token is a query
};

struct expected_row {
  std::vector<double> out;    // [d]
  double lse;                 // -infinity for an empty row
  std::vector<double> limit;  // what fp32 arithmetic and the store may add, per channel
  double lse_limit;
};

class small_attend {
 public:
  explicit small_attend(attend_shape shape, unsigned seed = 1);

  attend_shape shape;
  msabench_problem problem;
  buffer q, k, v, fused, ids, out, lse, cu_seqlens_q, kv_lens, cu_seqlens_kv, block_table;

  arguments args() const;
  std::int64_t tokens() const { return tokens_; }

  /// From the tensors as they are now.
  expected_row expected(std::int64_t row, std::int32_t head) const;

  /// First difference between out, lse and the expectation, as text; nothing if there is none.
  std::optional<std::string> fault() const;

 private:
  void make_lengths();
  void make_cache(std::mt19937& random);
  void make_ids(std::mt19937& random);
  double cached(bool value, std::int64_t b, std::int64_t head, std::int64_t j, std::int64_t c) const;

  std::int64_t tokens_ = 0, keys_ = 0, longest_ = 0, pages_ = 0;
  std::vector<std::int64_t> half_shape_;
};

}  // namespace msabench::plugin_test

// SPDX-License-Identifier: Apache-2.0
// A small qk_norm_rope problem with its tensors, and its result by double loops.
#pragma once

#include <msabench/plugin.h>

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/kernels/buffer.h"
#include "tests/kernels/plugin_session.h"

namespace msabench::plugin_test {

struct norm_rope_shape {
  std::int32_t hq = 4, hkv = 2, hi = 2, d = 24, di = 16, rope_dims = 8;
  msabench_dtype type = bf16_type;
  std::vector<std::pair<std::int32_t, std::int32_t>> sequences = {{3, 20}, {0, 0}, {1, 0}, {5, 5}};
  std::int64_t gap = 0, spare_rows = 2;  // strides exceed the packed ones by `gap`
};

class small_norm_rope {
 public:
  explicit small_norm_rope(norm_rope_shape shape);

  norm_rope_shape shape;
  msabench_problem problem;
  // q, k, q_idx, k_idx
  std::array<buffer, 4> x, weight, y;
  buffer cos_sin, cu_seqlens_q, kv_lens;

  arguments args() const;
  std::optional<std::string> fault() const;

 private:
  std::int32_t heads(std::size_t tensor) const;
  std::int32_t dim(std::size_t tensor) const;
  double get(const buffer& b, std::size_t tensor, std::int64_t row, std::int64_t head, std::int64_t c) const;
  std::int64_t position(std::int64_t row) const;
  std::vector<double> expected(std::size_t tensor, std::int64_t row, std::int64_t head) const;
  std::optional<std::string> fault_of(std::size_t tensor, std::int64_t row, std::int64_t head) const;

  std::int64_t tokens_ = 0;
};

}  // namespace msabench::plugin_test

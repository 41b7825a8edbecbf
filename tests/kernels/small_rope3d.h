// SPDX-License-Identifier: Apache-2.0
// A small rope3d problem with its tensors, and its result by counting patches one after the other.
#pragma once

#include <msabench/plugin.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "tests/kernels/buffer.h"
#include "tests/kernels/plugin_session.h"

namespace msabench::plugin_test {

struct rope3d_shape {
  std::int32_t heads = 2, d = 80, window = 4;
  msabench_dtype type = fp32_type;
  std::vector<std::array<std::int32_t, 3>> items = {{10, 4, 6}, {1, 2, 8}};
  double theta = 1e4;
  std::int64_t gap = 0, spare_rows = 2;  // strides exceed the packed ones by `gap`
};

class small_rope3d {
 public:
  explicit small_rope3d(rope3d_shape shape = {});

  rope3d_shape shape;
  msabench_problem problem;
  buffer q, k, grids, q_rope, k_rope, positions, cu_segments;

  arguments args() const;
  /// First difference from the expectation, as text; nothing if there is none.
  std::optional<std::string> fault() const;

  /// Of all patches, and the ends of all segments.
  std::vector<std::array<std::int32_t, 3>> places;
  std::vector<std::int32_t> ends = {0};

 private:
  std::optional<std::string> fault_of_head(const buffer& x, const buffer& y, std::int64_t row, std::int64_t head) const;
};

}  // namespace msabench::plugin_test

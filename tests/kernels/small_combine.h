// SPDX-License-Identifier: Apache-2.0
// A small combine problem with its tensors, and its result by double loops.
#pragma once

#include <msabench/plugin.h>

#include <optional>
#include <string>

#include "tests/kernels/buffer.h"
#include "tests/kernels/plugin_session.h"

namespace msabench::plugin_test {

class small_combine {
 public:
  /// Every fourth part of a row, and all parts of row 1, have no keys and NaN. Strides exceed the packed ones by `gap`.
  small_combine(std::int64_t parts, std::int64_t rows, std::int32_t heads, std::int32_t d, msabench_dtype partial,
                msabench_dtype type, std::int64_t gap = 0);

  msabench_problem problem;
  buffer partial_out, partial_lse, out, lse;

  arguments args() const;
  std::optional<std::string> fault() const;

 private:
  std::optional<std::string> fault_of(std::int64_t row, std::int64_t head) const;

  std::int64_t parts_, rows_;
  std::int32_t heads_, d_;
  msabench_dtype type_;
};

}  // namespace msabench::plugin_test

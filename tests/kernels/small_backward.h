// SPDX-License-Identifier: Apache-2.0
// A small attend_backward or dense_backward problem with its tensors, and its gradients by double loops over the
// definition (docs/contract.md, section 7).
#pragma once

#include <msabench/plugin.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/kernels/buffer.h"
#include "tests/kernels/plugin_session.h"
#include "tests/kernels/small_attend.h"

namespace msabench::plugin_test {

class small_backward {
 public:
  /// Batches are contiguous, so the shape's layout is ignored.
  explicit small_backward(attend_shape shape, unsigned seed = 1);

  small_attend forward;  ///< lengths, ids, q, k, v; out and lse are what its definition gives
  msabench_problem problem;
  buffer d_out, dq, dk, dv;

  arguments args() const;
  std::optional<std::string> fault() const;

 private:
  struct gradients;
  gradients expected() const;
  void add_head(std::int64_t row, std::int32_t head, gradients& to) const;
};

}  // namespace msabench::plugin_test

// SPDX-License-Identifier: Apache-2.0
// A small kl problem with its tensors, and its loss and gradients by double loops over the definition (docs/contract.md,
// section 7).
#pragma once

#include <msabench/plugin.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/kernels/buffer.h"
#include "tests/kernels/plugin_session.h"
#include "tests/kernels/small_attend.h"

namespace msabench::plugin_test {

struct kl_stage {
  std::int32_t di = 12;
  bool warm_up = false;
  double coeff = 0.75;
  double index_size = 1;  ///< of the values of q_idx
};

class small_kl {
 public:
  /// Batches are contiguous, so the shape's layout is ignored, and so is `dense`.
  explicit small_kl(attend_shape shape, kl_stage stage = {}, unsigned seed = 1);

  small_attend main;  ///< lengths, ids, q, k
  msabench_problem problem;
  buffer q_idx, k_idx, loss, dq_idx, dk_idx, dq, dk;

  arguments args() const;
  std::optional<std::string> fault() const;

  /// The loss of the tensors as they are.
  double expected_loss() const;

 private:
  struct gradients;
  struct softmax {
    std::vector<double> weights, logs;
  };
  std::vector<std::int64_t> keys_of(std::int64_t row, std::int64_t kv_head) const;
  softmax student(std::int64_t row, std::int64_t kv_head, const std::vector<std::int64_t>& keys) const;
  std::vector<double> teacher(std::int64_t row, std::int64_t kv_head, const std::vector<std::int64_t>& keys) const;
  void add_row(std::int64_t row, std::int64_t kv_head, gradients& to) const;
  std::optional<std::string> gradient_fault(const gradients& want) const;
  double factor() const;
};

}  // namespace msabench::plugin_test

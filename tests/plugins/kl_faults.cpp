// SPDX-License-Identifier: Apache-2.0
// kl gone wrong, each by one replaced stage of the naive kernels.
#include <cmath>

#include "kernels/naive/kl.h"
#include "tests/plugins/fault.h"

namespace msabench::faults {
namespace {

using namespace naive;

double term_of_weights(float teacher, float log_student) {
  return teacher == 0 ? 0 : teacher * (std::log(teacher) - std::log(std::exp(log_student)));
}

double term_with_epsilon(float teacher, float log_student) {
  constexpr float epsilon = 1e-4f;
  return teacher * (std::log(teacher + epsilon) - std::log(std::exp(log_student) + epsilon));
}

}  // namespace

/// kl: the loss takes the logarithm of the student's weight.
const msabench_plugin* kl_log_of_weight(const msabench_host* host) {
  return with_stages(host, "kl_log_of_weight", [](stages s) {
    s.loss_term = term_of_weights;
    return s;
  });
}

/// kl: 1e-4 is added to the weights before their logarithm is taken.
const msabench_plugin* kl_epsilon(const msabench_host* host) {
  return with_stages(host, "kl_epsilon", [](stages s) {
    s.loss_term = term_with_epsilon;
    return s;
  });
}

}  // namespace msabench::faults

// SPDX-License-Identifier: Apache-2.0
// Arithmetic other than declared, by too little for the worst case of any single element.
#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/naive/stages.h"
#include "tests/plugins/fault.h"

namespace msabench::faults {
namespace {

using namespace naive;

/// To nearest, with so many bits of the significand.
float rounded_to(float value, int bits) {
  const auto step = std::uint32_t{1} << (24 - bits);
  const std::uint32_t u = std::bit_cast<std::uint32_t>(value);
  return std::bit_cast<float>((u + step / 2) & ~(step - 1));
}

/// The sum of the weights is that of the exact ones, so that the log-sum-exp tells nothing.
template <int Bits>
void attend_with_short_weights(const float* scores, float maximum, const tile& values, weighted_sum& sum) {
  exact_stages.attend_block(scores, maximum, values, sum);
  for (std::int32_t c = 0; c < values.d; ++c) sum.values[c] = 0;
  for (std::int32_t i = 0; i < values.count; ++i) {
    const float weight = rounded_to(std::exp(scores[i] - maximum), Bits);
    for (std::int32_t c = 0; c < values.d; ++c)
      sum.values[c] += weight * values.rows[static_cast<std::int64_t>(i) * values.d + c];
  }
}

/// Declares P in bf16, of 8 bits.
const msabench_plugin* with_weights(const msabench_host* host, const char* name, const stages& stage) {
  msabench_plugin* table = copy_of(host, name, stage);
  if (table == nullptr) return nullptr;
  table->query = [](const msabench_problem* problem, msabench_capability* out) {
    const msabench_status status = exact().query(problem, out);
    const bool attends =
        problem->op == MSABENCH_OP_ATTEND || problem->op == MSABENCH_OP_DENSE || problem->op == MSABENCH_OP_MSA;
    if (status == MSABENCH_OK && attends && problem->q.code == 4) out->numerics.p_operand = {4, 16, 1};
    return status;
  };
  return table;
}

template <int Bits>
const stages& short_weights() {
  static const stages changed = [] {
    stages s = exact_stages;
    s.attend_block = attend_with_short_weights<Bits>;
    return s;
  }();
  return changed;
}

}  // namespace

/// attend, dense, msa: weights of 5 bits, declared as bf16. No element of a long row is off by more than its worst case.
const msabench_plugin* short_weights_undeclared(const msabench_host* host) {
  return with_weights(host, "short_weights_undeclared", short_weights<5>());
}

/// Right: weights of 8 bits, declared as bf16.
const msabench_plugin* rounds_weights(const msabench_host* host) {
  return with_weights(host, "rounds_weights", short_weights<8>());
}

/// Right, but declared as coarser than it is: exact weights, declared as bf16.
const msabench_plugin* declares_too_coarse(const msabench_host* host) {
  return with_weights(host, "declares_too_coarse", exact_stages);
}

}  // namespace msabench::faults

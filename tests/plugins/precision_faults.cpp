// SPDX-License-Identifier: Apache-2.0
// Arithmetic other than declared, by too little for the worst case of any single element.
#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/common/storage.h"
#include "kernels/common/types.h"
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

float stored_as(msabench_dtype type, float value) {
  std::uint16_t stored = 0;
  store_row(&value, 1, type, &stored);
  load_row(&stored, type, 1, &value);
  return value;
}

void store_with_short_lse(const weighted_sum& row, float maximum, const output_row& to) {
  exact_stages.store(row, maximum, to);
  if (to.lse != nullptr) *to.lse = stored_as(bf16_type, *to.lse);
}

}  // namespace

/// Right: weights of 8 bits, declared as bf16.
const msabench_plugin* rounds_weights(const msabench_host* host) {
  return with_weights(host, "rounds_weights", short_weights<8>());
}

/// Right, but declared as coarser than it is: exact weights, declared as bf16.
const msabench_plugin* declares_too_coarse(const msabench_host* host) {
  return with_weights(host, "declares_too_coarse", exact_stages);
}

/// attend, dense, msa, combine: lse is rounded to bf16. K2 alone sees it.
const msabench_plugin* short_lse(const msabench_host* host) {
  return with_stages(host, "short_lse", [](stages s) {
    s.store = store_with_short_lse;
    return s;
  });
}

}  // namespace msabench::faults

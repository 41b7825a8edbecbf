// SPDX-License-Identifier: Apache-2.0
// attend_backward and dense_backward gone wrong, by one replaced stage of the naive kernels.
#include "kernels/common/storage.h"
#include "tests/plugins/fault.h"

namespace msabench::faults {
namespace {

using namespace naive;

constexpr std::int32_t longest_line = 1024;

void add_dv_in_16_bits(float factor, const float* values, std::int32_t d, float* sum) {
  std::uint16_t stored[longest_line];
  exact_stages.add_dv(factor, values, d, sum);
  store_row(sum, d, bf16_type, stored);
  load_row(stored, bf16_type, d, sum);
}

}  // namespace

/// backward: dV is rounded to bf16 after every addition.
const msabench_plugin* backward_short_dv(const msabench_host* host) {
  return with_stages(host, "backward_short_dv", [](stages s) {
    s.add_dv = add_dv_in_16_bits;
    return s;
  });
}

}  // namespace msabench::faults

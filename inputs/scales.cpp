// SPDX-License-Identifier: Apache-2.0
#include "inputs/scales.h"

#include <fmt/format.h>

#include <vector>

#include "core/error.h"

namespace msabench {

namespace {

slot scale_slot(slot operand) {
  switch (operand) {
    case slot::k:
      return slot::k_scale;
    case slot::v:
      return slot::v_scale;
    case slot::q_idx:
      return slot::q_idx_scale;
    case slot::k_idx:
      return slot::k_idx_scale;
    default:
      throw suite_error(fmt::format("{} has no scales", name(operand)));
  }
}

bool of_index_branch(slot operand) { return operand == slot::q_idx || operand == slot::k_idx; }

scale_form form_of(const problem& p, slot operand) {
  // Queries of the index branch have one for each head and token whatever the keys have.
  if (operand == slot::q_idx) return p.idx_scale != 0 ? scale_form::token : scale_form::none;
  return static_cast<scale_form>(operand == slot::k_idx ? p.idx_scale : p.kv_scale);
}

// Codes, carries and planted scores are exact numbers; a needle's key has its weight by its size. All other values are
// normal numbers, of which any multiple is as good.
bool has_exact_values(const case_spec& c, slot operand) {
  if (of_index_branch(operand)) return c.family != "random";
  if (c.family == "needle") return operand == slot::k;
  return c.family != "random" && c.family != "planted";
}

}  // namespace

operand_scales::operand_scales(const case_spec& c, const problem& p, slot operand)
    : form_(form_of(p, operand)),
      where_(scale_slot(operand)),
      divides_(has_exact_values(c, operand)),
      random_(name_without_seed(c), name(where_), c.seed) {}

double operand_scales::at(std::uint64_t number) const {
  if (form_ == scale_form::tensor) {
    // Different ones for k and v, and none that is 1.
    if (divides_) return where_ == slot::v_scale ? 8 : where_ == slot::k_scale ? 2 : 4;
    return where_ == slot::v_scale ? 1.671875 : where_ == slot::k_scale ? 0.7265625 : 1.3984375;
  }
  const std::uint32_t word = random_.word(number);
  if (divides_) return static_cast<double>(1U << word % 4);
  // 24 significant bits from 1/2 to 2.
  const double fraction = 1 + static_cast<double>(word >> 9) * 0x1p-23;
  return (word & 1) != 0 ? fraction : fraction / 2;
}

void divide_stored(void* values, dtype type, std::int64_t count, double divisor) {
  if (divisor == 1) return;
  std::vector<double> wide(static_cast<std::size_t>(count));
  widen(values, type, 0, count, wide.data());
  for (double& x : wide) x /= divisor;
  narrow(wide.data(), count, values, type, 0);
}

}  // namespace msabench

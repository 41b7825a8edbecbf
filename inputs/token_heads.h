// SPDX-License-Identifier: Apache-2.0
// Heads of tokens as family `tokens` has them, for operators that rotate them.
#pragma once

#include <string_view>

#include "inputs/operators.h"

namespace msabench {

// value(step) of a channel from a normal integer in [-510, 510].
struct token_variant {
  std::string_view name;
  double x_scale, weight, weight_scale;
};
// Throws suite_error for a case of another family.
const token_variant& token_variant_of(const case_spec& c);

// Fills q, k, q_idx or k_idx, [T, heads, width] or, of one head, [T, width].
void fill_token_heads(const fill_job& job, slot where);

}  // namespace msabench

// SPDX-License-Identifier: Apache-2.0
// How an implementation says that it computes; limits are derived from it (docs/verdicts.md). Mirrors msabench_numerics.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "core/dtype.h"

namespace msabench {

// Bits of numerics::truncated: the store is rounded toward zero, which doubles its roundoff.
enum truncation : std::uint32_t {
  truncates_operand = 1,
  truncates_v = 2,
  truncates_score = 4,
  truncates_p = 8,
  truncates_partial = 16,
  truncates_out = 32,
  truncates_ds = 64,
};

struct numerics {
  dtype operand, v_operand, score_acc, score_store, p_operand, pv_acc, partial_store, out_store, ds_operand;
  std::uint8_t rounded_operands = 0;    // how many of q, k are rounded before the product: 0, 1, 2
  std::uint8_t lse_from_rounded_p = 0;  // 1: the row sum adds P after rounding
  std::uint32_t truncated = 0;          // set of `truncation`
  std::uint32_t chain_score = 0, chain_out = 0, chain_row_sum = 0, chain_dq = 0, chain_dkv = 0;  // 0: see plugin.h
  float exp_rel_error = 0, log_abs_error = 0;                                                    // 0: 2^-22

  bool operator==(const numerics&) const = default;
};

void to_json(nlohmann::json& out, const numerics& n);
void from_json(const nlohmann::json& in, numerics& n);

}  // namespace msabench

// SPDX-License-Identifier: Apache-2.0
// `vit3d` end to end. Where it hands back rotated q and k, these are held to the limits of `rope3d` on every row, and the
// outputs to `vit_attend` on exactly these. Where it does not, outputs are held to the attention of exactly rotated q and k, with
// a rounding of both to 2^-8 allowed for.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "judge/attend_expectation.h"
#include "judge/judge.h"
#include "judge/rope3d_expectation.h"

namespace msabench::judge {

class vit3d_expectation final : public expectation {
 public:
  vit3d_expectation(const subject& what, std::span<const std::int64_t> rows);

  std::vector<check_result> check(const launch& outputs, int launch_index, std::uint64_t poison_seed) const override;
  detectability measure() const override;
  void answer(answers& into, const launch& outputs) const override;
  std::int64_t rows_checked() const override { return static_cast<std::int64_t>(rows_.size()); }

 private:
  // Rotated q and k of all rows in float64, packed, and what attention on them is.
  struct rotated {
    std::vector<double> q, k;
  };
  struct attention_part {
    rotated on;
    std::unique_ptr<attend_expectation> judged;
  };
  std::unique_ptr<attention_part> attention_on(rotated qk, const numerics& declared) const;
  rope3d_outputs returned(const launch& outputs, int launch_index, std::uint64_t poison_seed) const;
  const attend_expectation& attention_of(const rope3d_outputs& got) const;
  rotated exactly_rotated() const;
  numerics with_rounded_operands() const;

  subject what_;
  std::vector<std::int64_t> rows_;
  rope3d_expectation rope_;
  // Of the last launch: mostly the next one hands back the same. And on exactly rotated q and k.
  mutable std::unique_ptr<attention_part> last_, end_to_end_;
};

}  // namespace msabench::judge

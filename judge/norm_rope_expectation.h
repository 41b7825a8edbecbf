// SPDX-License-Identifier: Apache-2.0
// The oracle's answer to a `qk_norm_rope` case, its limit (docs/verdicts.md) and the checks K0 and K1 against it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "judge/declaration.h"
#include "judge/judge.h"
#include "judge/limits.h"
#include "reference/qk_norm_rope.h"
#include "reference/rows.h"

namespace msabench::judge {

using rotated_limit = limit<6>;

// K1 of channel c of a head that is normalised and rotated; `f` says where else it may round to storage.
rotated_limit limit_of_rotated(const roundoffs& r, const profile& f, const reference::qk_norm_rope_row& row,
                               std::size_t c);

class norm_rope_expectation final : public expectation {
 public:
  norm_rope_expectation(const subject& what, std::span<const std::int64_t> rows);

  std::vector<check_result> check(const launch& outputs, int launch_index, std::uint64_t poison_seed) const override;
  detectability measure() const override;
  void answer(answers& into, const launch& outputs) const override;
  std::int64_t rows_checked() const override { return static_cast<std::int64_t>(rows_.size()); }

 private:
  check_result check_structure(const launch& outputs, int launch_index, std::uint64_t poison_seed) const;
  check_result check_outputs(const launch& outputs, const roundoffs& r) const;

  subject what_;
  reference::qk_norm_rope_inputs in_;
  reference::row_map map_;
  roundoffs r_;
  std::vector<std::int64_t> rows_;
  std::vector<reference::qk_norm_rope_row> want_;
};

// What a head would come out as if `qk_norm_rope` had one of the gross faults of core/perturbation.h.
class perturbable_head {
 public:
  // `in_chunk`: the row's number among those of its sequence in this call. Of a row that is no padding.
  perturbable_head(const reference::qk_norm_rope_inputs& in, const reference::qk_norm_rope_row& want,
                   std::int64_t in_chunk);

  // Nothing if the fault can't show: a single head, nothing rotated, another dimension, ...
  std::optional<std::vector<double>> apply(perturbation fault) const;

 private:
  using line = std::vector<double>;
  line angles_at(std::int64_t position) const;
  line rotated(const line& weights, double eps, const line& angles) const;
  std::optional<line> across_heads() const;
  std::optional<line> at_position(std::int64_t position) const;
  std::optional<line> all_dims() const;
  std::optional<line> interleaved() const;
  std::optional<line> backwards() const;
  std::optional<line> main_weights() const;
  std::optional<line> rounded_between() const;

  const reference::qk_norm_rope_inputs& in_;
  slot output_;
  std::int64_t row_, position_, in_chunk_;
  line x_, weights_, angles_;
};

}  // namespace msabench::judge

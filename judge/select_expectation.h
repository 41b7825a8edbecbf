// SPDX-License-Identifier: Apache-2.0
// The checks K0 and K5 of `select` on given scores.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "judge/judge.h"
#include "judge/select_row_check.h"
#include "reference/rows.h"
#include "reference/select.h"

namespace msabench::judge {

class select_expectation final : public expectation {
 public:
  select_expectation(const subject& what, std::span<const std::int64_t> rows);

  std::vector<check_result> check(const launch& outputs, int launch_index, std::uint64_t poison_seed) const override;
  detectability measure() const override;
  void answer(answers& into, const launch& outputs) const override;
  std::int64_t rows_checked() const override { return static_cast<std::int64_t>(rows_.size()); }

 private:
  void scores_of(std::int64_t row, std::int64_t head, std::vector<double>& scores) const;

  subject what_;
  reference::select_inputs in_;
  reference::row_map map_;
  selection_rules rules_;
  std::vector<std::int64_t> rows_;
};

// What `select` would answer for a row and head if it had one of the gross faults of core/perturbation.h.
class perturbable_selection {
 public:
  // Scores of the row's own head, of head 0, and of a neighbouring row of the same sequence (empty: none) with as many
  // visible blocks as it has.
  struct given {
    std::vector<double> own, head0, neighbour;
    std::int64_t visible = 0, neighbour_visible = 0;
  };
  perturbable_selection(given g, const selection_rules& rules) : given_(std::move(g)), rules_(rules) {}

  // topk ids; nothing if the fault can't show on this row.
  std::optional<std::vector<std::int32_t>> apply(perturbation fault) const;
  const given& scores() const { return given_; }

 private:
  std::vector<std::int32_t> choose(std::span<const double> scores, std::int64_t local_blocks) const;
  std::optional<std::vector<std::int32_t>> with_scores(double (*change)(double)) const;
  std::optional<std::vector<std::int32_t>> last_choice_replaced() const;
  std::optional<std::vector<std::int32_t>> forced_on_top() const;
  std::optional<std::vector<std::int32_t>> sentinel() const;
  std::optional<std::vector<std::int32_t>> sixteen_bit_ranks() const;

  given given_;
  selection_rules rules_;
};

}  // namespace msabench::judge

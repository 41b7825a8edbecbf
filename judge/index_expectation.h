// SPDX-License-Identifier: Apache-2.0
// The checks K0, K5 and K2 of `index`: ids that some honest scores select, and lse_idx on the ids that came back.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "judge/index_branch.h"
#include "judge/judge.h"
#include "judge/select_row_check.h"
#include "reference/index.h"
#include "reference/rows.h"

namespace msabench::judge {

class index_expectation final : public expectation {
 public:
  index_expectation(const subject& what, std::span<const std::int64_t> rows);

  std::vector<check_result> check(const launch& outputs, int launch_index, std::uint64_t poison_seed) const override;
  detectability measure() const override;
  void answer(answers& into, const launch& outputs) const override;
  std::int64_t rows_checked() const override { return static_cast<std::int64_t>(rows_.size()); }

  const reference::row_map& rows() const { return map_; }

  // What the oracle's own scores select, topk ids; `at`: position in the checked rows.
  std::vector<std::int32_t> own_choice(std::size_t at, std::int64_t head) const;

  // Whether every honest implementation has to choose the same.
  bool leaves_no_choice(std::size_t at, std::int64_t head) const;

 private:
  check_result check_lse_written(const tensor_view& lse, int launch_index, std::uint64_t poison_seed) const;
  check_result check_lse(const tensor_view* lse, const tensor_view& ids) const;
  const reference::score_row& want(std::size_t at, std::int64_t head) const {
    return want_[at * static_cast<std::size_t>(what_.agreed.hi) + static_cast<std::size_t>(head)];
  }
  selection_fault judge(const reference::score_row& want, std::span<const std::int32_t> ids,
                        const selection_rules& rules) const;
  // Ids of a row and head under a fault; nothing if it can't show there.
  std::optional<std::vector<std::int32_t>> choose_wrongly(perturbation fault, std::size_t at, std::int64_t head) const;

  subject what_;
  reference::score_inputs in_;
  reference::row_map map_;
  roundoffs r_;
  selection_rules rules_;
  std::vector<std::int64_t> rows_;
  std::vector<reference::score_row> want_;  // rows x heads
};

// The declared number that would have let lse_idx of these rows and heads pass.
std::string find_lse_cure(const subject& what, const reference::score_inputs& in, const tensor_view& ids,
                          const tensor_view& lse, std::span<const reference::index_lse_row> failing);

}  // namespace msabench::judge

// SPDX-License-Identifier: Apache-2.0
// The checks K0 and K1 of `score`: every score within the interval that a declared arithmetic allows.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "judge/index_branch.h"
#include "judge/judge.h"
#include "reference/rows.h"
#include "reference/score.h"

namespace msabench::judge {

// A score as emitted and the interval that it was held to, in the emitted unit.
struct judged_score {
  std::int64_t row = 0, head = 0, block = 0;
  double got = 0, want = 0, lo = 0, hi = 0;

  // |got - want| to the end of the interval on that side: at most 1 inside, above 1 outside.
  double ratio() const;
  // Of that end from `want`.
  double limit() const;
};

class score_expectation final : public expectation {
 public:
  score_expectation(const subject& what, std::span<const std::int64_t> rows);

  std::vector<check_result> check(const launch& outputs, int launch_index, std::uint64_t poison_seed) const override;
  detectability measure() const override;
  void answer(answers& into, const launch& outputs) const override;
  std::int64_t rows_checked() const override { return static_cast<std::int64_t>(rows_.size()); }

 private:
  check_result check_written(const tensor_view& scores, int launch_index, std::uint64_t poison_seed) const;
  check_result check_values(const tensor_view& scores) const;
  // Whether the profile has a value in the block, as the contract says; else nothing is held to it but being written.
  bool has_value(std::int64_t block, std::int64_t visible) const;
  judged_score judge(const reference::score_row& want, std::int64_t block, double got) const;
  std::vector<std::pair<std::string, double>> terms_of(const judged_score& worst) const;

  subject what_;
  reference::score_inputs in_;
  reference::row_map map_;
  reference::interval_model model_;
  std::vector<std::int64_t> rows_;
  std::vector<reference::score_row> want_;  // rows x heads
};

// What a wrong score looks like, for a person: the key that was left out, a key counted that the row does not see, ...;
// empty if nothing simple explains it.
std::string name_score_fault(const reference::score_inputs& in, const judged_score& wrong);

// The declared number that would have let these scores pass.
std::string find_score_cure(const subject& what, const reference::score_inputs& in,
                            std::span<const judged_score> failing);

}  // namespace msabench::judge

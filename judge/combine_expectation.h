// SPDX-License-Identifier: Apache-2.0
// The oracle's answer to a `combine` case, its limits (docs/verdicts.md) and the checks K0 to K2 against it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "judge/declaration.h"
#include "judge/judge.h"
#include "judge/limits.h"
#include "reference/combine.h"

namespace msabench::judge {

using combine_limit = limit<7>;
using combine_lse_limit = limit<5>;

// K1 of channel c and K2, of a row to which some part contributes.
combine_limit limit_of_combined(const roundoffs& r, const reference::combine_row& row, std::size_t c);
combine_lse_limit limit_of_combined_lse(const roundoffs& r, const reference::combine_row& row);

class combine_expectation final : public expectation {
 public:
  combine_expectation(const subject& what, std::span<const std::int64_t> rows);

  std::vector<check_result> check(const launch& outputs, int launch_index, std::uint64_t poison_seed) const override;
  detectability measure() const override;
  void answer(answers& into, const launch& outputs) const override;
  std::int64_t rows_checked() const override { return static_cast<std::int64_t>(rows_.size()); }

 private:
  check_result check_structure(const launch& outputs, int launch_index, std::uint64_t poison_seed) const;
  check_result check_output(const tensor_view& out, const roundoffs& r) const;
  check_result check_lse(const tensor_view& lse, const roundoffs& r) const;
  template <class Check>
  check_result with_cure(const Check& check) const;

  subject what_;
  reference::combine_inputs in_;
  roundoffs r_;
  std::vector<std::int64_t> rows_;
  std::vector<reference::combine_row> want_;
};

// What `combine` would answer for a row and head if it had one of the gross faults of core/perturbation.h.
class perturbable_partials {
 public:
  struct answer {
    std::vector<double> out;
    double lse = 0;
  };
  perturbable_partials(const reference::combine_inputs& in, std::int64_t row, std::int64_t head);

  // Nothing if the fault can't show: no part without keys, a single head, ...
  std::optional<answer> apply(perturbation fault) const;

 private:
  struct part {
    double lse = 0;
    std::vector<double> out;
  };
  answer combined(const std::vector<part>& parts) const;
  answer not_a_number() const;
  std::optional<answer> with_lightest(bool twice) const;
  std::optional<answer> in_base2() const;
  std::optional<answer> undivided() const;
  std::optional<answer> without_maximum() const;
  std::optional<answer> with_lse_of_next_head() const;

  std::vector<part> parts_;  // with keys
  std::size_t dims_ = 0;
  bool any_empty_ = false;
  std::vector<double> next_head_;  // LSE_p of the next head for parts_; empty: one head, or other parts have keys there
};

}  // namespace msabench::judge

// SPDX-License-Identifier: Apache-2.0
// Gradients of problems too large for the oracle to compute whole: K0 on every element, K8 on dq of sampled rows and on
// dk and dv of as many keys, each over all rows that read it. They are held to the gradients of the out and lse that
// were handed in.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "judge/backward_expectation.h"

namespace msabench::judge {

class backward_samples final : public expectation {
 public:
  // Keys are as far along their sequence as the rows are: those at the rows' own positions where all tokens are queries.
  backward_samples(const subject& what, std::span<const std::int64_t> rows);

  std::vector<check_result> check(const launch& outputs, int launch_index, std::uint64_t poison_seed) const override;
  // Of samples nothing is said: a fault may show elsewhere.
  detectability measure() const override { return {}; }
  void answer(answers& into, const launch& outputs) const override;
  std::int64_t rows_checked() const override { return static_cast<std::int64_t>(lines_.rows.size()); }

  // Rows of k.
  const std::vector<std::int64_t>& keys() const { return lines_.keys; }

 private:
  const std::vector<std::int64_t>& lines_of(slot where) const { return where == slot::dq ? lines_.rows : lines_.keys; }

  subject what_;
  reference::backward_inputs in_;
  roundoffs r_;
  reference::backward_error err_;
  reference::gradient_lines lines_;
  reference::backward_result want_;
};

}  // namespace msabench::judge

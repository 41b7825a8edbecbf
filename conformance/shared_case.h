// SPDX-License-Identifier: Apache-2.0
// Inputs of one case, and what the oracle expects of it, for implementations that run it one after the other: inputs are
// made once for each problem that is agreed on, expectations once for each declaration and choice of rows.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/case.h"
#include "inputs/input_set.h"
#include "judge/judge.h"

namespace msabench {

class shared_case {
 public:
  explicit shared_case(case_spec c) : case_(std::move(c)) {}

  // Laid out for `agreed`. The outputs are of whoever ran last.
  input_set& inputs(const problem& agreed);

  struct expected_outputs {
    std::unique_ptr<judge::expectation> of;
    std::optional<detectability> sees;  // once it has been measured
  };
  // `what.inputs` are those of inputs(what.agreed).
  expected_outputs& expected(const judge::subject& what, const std::vector<std::int64_t>& rows);

  // What was made for this problem is not to be trusted any more.
  void discard(const problem& agreed);

  // Seconds that inputs and expectations have taken so far.
  double seconds() const { return seconds_; }

 private:
  struct made_inputs {
    std::string problem;
    input_set set;
  };
  struct made_expectation {
    std::string problem, declaration;
    std::vector<std::int64_t> rows;
    expected_outputs outputs;
  };

  case_spec case_;
  std::list<made_inputs> inputs_;  // lists: what they hand out stays where it is
  std::list<made_expectation> expected_;
  double seconds_ = 0;
};

}  // namespace msabench

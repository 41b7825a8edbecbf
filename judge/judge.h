// SPDX-License-Identifier: Apache-2.0
// Checks as pure functions of values: the problem, the inputs, what was declared, the outputs of one launch. How and
// where an implementation ran is unknown here. Limits: docs/verdicts.md.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/check_result.h"
#include "core/numerics.h"
#include "core/observation.h"
#include "core/perturbation.h"
#include "core/problem.h"
#include "core/profile.h"
#include "core/record.h"
#include "core/tensor_view.h"

namespace msabench::judge {

// Everything about a case that does not depend on the implementation's outputs.
struct subject {
  case_spec definition;
  problem agreed;
  profile delivers;
  numerics declared;
  std::map<slot, tensor_view> inputs;
  std::vector<perturbation> targets;
};

// Without inputs and targets.
subject subject_of(const case_spec& c, const problem& agreed, const std::optional<capability>& answered);

// One line per claim above its cap or without meaning (NaN, chain beyond the longest possible, roundoff of no known
// format); empty: the declaration stands. Field names are those of msabench_numerics and msabench_profile.
std::vector<std::string> broken_declarations(const problem& p, const numerics& n, const profile& f);

// Names the suite gives to a legal unusual declaration, e.g. "score16", "tf32"; printed in reports.
std::vector<std::string> named_declarations(const problem& p, const numerics& n);

class answers;

// The oracle's answer and gauges for some rows, computed once per case and used for every launch.
class expectation {
 public:
  virtual ~expectation() = default;
  // K0 (values: every output written, finite pattern, empty rows) on all rows, K1-K5 on the expectation's rows.
  // `launch_index` and `poison_seed` tell which poison an unwritten element still holds.
  virtual std::vector<check_result> check(const launch& outputs, int launch_index, std::uint64_t poison_seed) const = 0;
  virtual detectability measure() const = 0;
  virtual std::int64_t rows_checked() const = 0;
  // Of a gradient that is judged by samples, where these are not as many as the rows; 0: as many.
  virtual std::int64_t keys_checked() const { return 0; }
  // What K1, K2 and K3 hold the elements of a launch's outputs to, on the checked rows; of ids what the oracle's own
  // scores select, which need not be the only right choice.
  virtual void answer(answers& into, const launch& outputs) const = 0;
};

// Computes the oracle on `rows` (ascending, unique, below T). Throws suite_error for an operator without an oracle.
std::unique_ptr<expectation> expect(const subject& what, std::span<const std::int64_t> rows);

// K7, two-launch part: merges the checks of all launches (equal bytes = same verdict) into one list, the worst of each
// id, and adds K7 (bitwise equality gated only where `repeatable` is promised; a launch that fails where another passes
// fails).
std::vector<check_result> merge_launches(const subject& what, std::span<const launch> launches,
                                         const std::vector<std::vector<check_result>>& per_launch);

// Violations that the executor saw, as K0 / R checks.
std::vector<check_result> check_violations(const subject& what, const observation& seen);

// The case's verdict, its kind and one line of reason.
struct decision {
  verdict decided = verdict::suite_error;
  fail_kind kind = fail_kind::none;
  std::string reason;
};
decision decide(const subject& what, const observation& seen, const std::vector<check_result>& checks,
                const detectability& sees);

}  // namespace msabench::judge

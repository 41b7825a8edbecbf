// SPDX-License-Identifier: Apache-2.0
// Runs a case in other ways, to see whether an implementation keeps what its profile promises: rows alone, other numbers
// of splits, one plan with other contents, contents that break the caller's duties.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/run_spec.h"
#include "host/executor.h"
#include "judge/judge.h"
#include "judge/promises.h"

namespace msabench {

struct promise_findings {
  std::vector<check_result> checks;             // of promises that could be looked at
  std::vector<judge::replayed_launch> replays;  // of one plan with other contents, still to be checked (graph_safe)
  std::vector<std::string> unobserved;          // a clause for each of the others
  std::vector<violation> violations;            // damage that these runs did
  std::vector<std::string> remarks;
  // A run that did not complete; nothing is judged then.
  struct end {
    std::string during;
    observation seen;
  };
  std::optional<end> ended;
};

// `seen` has the launches of the case on `set`; `how` is how they ran. The outputs of `set` are overwritten, those that
// `seen` holds are not.
promise_findings hold_to_promises(executor& on, const judge::subject& what, const observation& seen, input_set& set,
                                  const run_spec& how);

// Rows that are run alone, at most three, none of them empty: the one that sees most keys, the last one and one between.
std::vector<std::int64_t> rows_to_run_alone(const case_spec& c);

}  // namespace msabench

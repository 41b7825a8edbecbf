// SPDX-License-Identifier: Apache-2.0
// Random cases, one after the other until time is up, each judged like any other; of what fails the smallest case like it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "conformance/runner.h"
#include "core/case.h"
#include "core/record.h"
#include "host/executor.h"

namespace msabench {

struct fuzz_plan {
  double seconds = 0;
  std::uint64_t seed = 0;
  std::vector<op> operators;  // none: all that have cases
};

struct fuzz_progress {
  std::function<void(const case_record&, double seconds_left)> after_each;
  // A failure of a kind that the run has not met before, and the record of the smallest case like it.
  std::function<void(const found_failure&, const case_record&)> after_shrinking;
};

// What failed: the verdict, of a fail or broken promise with the first gating check that was violated ("fail K1") or the
// field that was declared wrongly ("broken-promise numerics.chain_out"); empty for a case that did not fail. Faults of the
// suite count.
std::string failure_of(const case_record& record);

// Whether the record fails as `failure` says, whatever else it fails at.
bool fails_alike(const case_record& record, const std::string& failure);

// Adds the records of all cases to `into`, those of the smallest failing ones among them, and sets into.fuzz. Only the
// first failure of each operator and kind is shrunk, until 30 s beyond the end; the case that is then under way is awaited. Once interrupted it stops, with
// into.partial set.
void fuzz(executor& on, const fuzz_plan& plan, const runner_options& options, run_record& into,
          const fuzz_progress& tell);

}  // namespace msabench

// SPDX-License-Identifier: Apache-2.0
// Runs cases on one implementation and judges what came back.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/record.h"
#include "host/executor.h"
#include "inputs/input_set.h"
#include "judge/judge.h"

namespace msabench {

// A case that has run, with everything that its verdict is made of.
struct judged_case {
  const case_spec& definition;
  const profile& delivers;
  const input_set& inputs;
  const observation& seen;
  const judge::expectation* expected;  // null where no outputs were judged
};

class shared_case;

struct runner_options {
  std::optional<double> timeout_s;  // per case; empty: from the work model
  std::string repro_suffix;         // what follows the case name in the reproducing command, e.g. " --impl naive"
  executor* naive = nullptr;        // whose errors are compared with (K6n); null: not compared
  std::string left_out = {};        // a check that judging does without (judge/left_out.h), "K0" to "K5"; empty: none
  std::function<void(const judged_case&)> inspect = {};  // called after each case that ran; empty: nobody looks
  shared_case* shared = nullptr;  // of the case that runs, if others run it too; null: it is made for this run alone
};

// Seconds that a case may take in the worker, everything together: generous for a slow right kernel, finite for a hang.
double time_limit_s(const case_spec& c);

// Memory that a case takes at the least: inputs that are filled whole, outputs and the copies kept of them. Keys and values
// count only where every one is read.
double memory_bytes(const case_spec& c);

// environment_error if the case does not fit into 80 % of the memory that the machine can give: one without memory kills
// whom it likes.
void require_memory(const case_spec& c);

// One case from inputs to verdict. Throws only if interrupted() is set (see run_cases); faults of the suite become a
// record with verdict suite-error, so that the rest of the run goes on.
case_record run_case(executor& on, const case_spec& c, const runner_options& options);

struct progress {
  std::size_t done = 0, total = 0;
  double seconds_left = 0;  // estimated from the cost of what is left
};

// Runs the cases in order and adds their records to `into`. Stops early, with into.partial set, once interrupted.
void run_cases(executor& on, const std::vector<case_spec>& cases, const runner_options& options, run_record& into,
               const std::function<void(const case_record&, const progress&)>& after_each);

}  // namespace msabench

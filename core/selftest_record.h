// SPDX-License-Identifier: Apache-2.0
// What a self-test of the suite comes to: which mutant died where, and which variant lived how; reports render it.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/verdict.h"

namespace msabench {

// One implementation on one case.
struct selftest_trial {
  std::string case_name;
  verdict decided = verdict::suite_error;
  fail_kind kind = fail_kind::none;
  std::string reason;
  struct failed_check {
    std::string id;
    double margin = 0;  // value / limit; 0: the check has no limit
  };
  std::vector<failed_check> failed;  // gating checks, in the order of the report
  std::map<std::string, double>
      use;  // value / limit of gating checks that passed, and K6u, the healthy one; variants only
  std::string repro;
  bool is_own = false;  // the case stands on the line of the implementation in mutants.txt or variants.txt
};

struct selftest_subject {
  std::string name, what;        // "mutants:IDX-3.a", one line of what it does
  std::vector<std::string> due;  // mutants: checks of its own stage; empty: any will do
  std::vector<selftest_trial> trials;
  bool held = false;      // a mutant that died where it should, a variant that lived everywhere
  std::string complaint;  // one line, unless `held`
  std::string by;         // mutants: the check of its own stage that failed first
  std::size_t at = 0;     // and the trial
};

struct selftest_record {
  std::string suite_version, suite_commit;
  std::string lists_sha256;
  bool whole = false;    // every mutant and variant on every case of core.selftest that has one of its operators
  bool partial = false;  // interrupted
  std::string without;   // a check that was left out: then nothing here is a verdict
  std::vector<selftest_subject> mutants, variants;
  double oracle_s = 0, total_s = 0;
};

// The largest use of any gating check's limit by a variant, and of the part of K1's that is not the store's (K6u).
struct bound_use {
  double any = 0, beyond_store = 0;
};
bound_use worst_use(const selftest_record& run);

// "121 of 121 mutants rejected, 26 of 26 variants accepted, limits used to 0.931, beyond the store to 0.31", and that
// not every case was run where that is so.
std::string score_of(const selftest_record& run);

// 0; 1: a mutant lived or a variant died; 2: interrupted, or a check was left out; 3: there was nothing to try.
int exit_code_of(const selftest_record& run);

nlohmann::json to_json(const selftest_record& run);  // msabench.selftest/1

}  // namespace msabench

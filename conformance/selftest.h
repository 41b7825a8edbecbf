// SPDX-License-Identifier: Apache-2.0
// The suite's test of itself: mutants have to die at a check of their own stage, honest variants have to live. Case by case,
// so that inputs and expectations are made once for all implementations that run it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "conformance/selftest_lists.h"
#include "core/selftest_record.h"
#include "host/executor.h"

namespace msabench {

struct selftest_setup {
  bool quick = false;  // a mutant or variant runs the cases of its line only
  std::string only;    // glob over ids and names; empty: all
  // Globs over names of cases, of which one has to match; empty: all. Who has none left is not tried.
  std::vector<std::string> filters;
  std::string without;  // a check that judging does without; empty: none
  std::vector<std::string> more_mutants,
      more_variants;            // plugins from elsewhere: FILE.so[:ARGUMENT]; they run every case
  std::optional<device> where;  // that these run on; empty: the CPU
  int threads = 1;              // of each implementation
  std::optional<double> timeout_s;
};

struct selftest_progress {
  std::size_t cases_done = 0, cases = 0;
  std::string case_name;  // just done
};

// Stops early, with `partial` set, once interrupted. usage_error for a plugin that can't be loaded.
selftest_record run_selftest(const selftest_lists& lists, const selftest_setup& setup,
                             const std::function<void(const selftest_progress&)>& after_each);

// Whether what has been tried of a mutant or variant is as it should be, and if not why not.
void judge_mutant(selftest_subject& mutant);
void judge_variant(selftest_subject& variant);

}  // namespace msabench

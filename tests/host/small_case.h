// SPDX-License-Identifier: Apache-2.0
// A case of a few milliseconds, negotiated with an executor, for tests of executors.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "host/executor.h"

namespace msabench::host_test {

inline constexpr std::string_view attend_name = "attend/h4x2.d64.b16.k4.l1.i0/rag.small/fp32.paged/random/s0";
inline constexpr std::string_view select_name = "select/h4x2.d64.b16.k4.l1.i0/rag.small/fp32/select.gap/s0";

inline std::string plugin_path(const std::string& name) {
  return name == "naive" ? std::string(MSABENCH_BINARY_DIR) + "/lib/msabench/naive.so"
                         : std::string(MSABENCH_BINARY_DIR) + "/test-plugins/" + name + ".so";
}

inline implementation_ref plugin(const std::string& name) { return {name, plugin_path(name), {}}; }

inline std::unique_ptr<executor> worker_of(const std::string& name, double query_timeout_s = 20, int threads = 2) {
  executor_options options;
  options.threads = threads;
  options.query_timeout_s = query_timeout_s;
  return make_worker_executor(plugin(name), options);
}

inline run_spec two_launches(double timeout_s = 20) {
  run_spec how;
  how.timeout_s = timeout_s;
  return how;
}

// Negotiates, makes inputs, executes. Stops at a query that is not OK.
inline observation run_case(executor& on, const run_spec& how, std::string_view case_name = attend_name) {
  const case_spec c = parse_case(case_name);
  const agreement a = negotiate(on, make_problem(c));
  EXPECT_EQ(a.refused, "");
  if (a.answer.result != outcome::completed) return a.answer;
  input_set set = make_inputs(c, a.agreed);
  observation seen = on.execute(set, how);
  // What query saw belongs to the case as well.
  seen.violations.insert(seen.violations.begin(), a.answer.violations.begin(), a.answer.violations.end());
  seen.remarks.insert(seen.remarks.begin(), a.answer.remarks.begin(), a.answer.remarks.end());
  return seen;
}

inline const violation* find(const observation& seen, violation::kind what) {
  for (const violation& v : seen.violations)
    if (v.what == what) return &v;
  return nullptr;
}

}  // namespace msabench::host_test

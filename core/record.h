// SPDX-License-Identifier: Apache-2.0
// What is kept of a case and of a run; reports render these and nothing else.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/check_result.h"
#include "core/numerics.h"
#include "core/profile.h"
#include "core/run_part.h"
#include "core/samples.h"
#include "core/verdict.h"

namespace msabench {

// How strongly the case sees its target faults: min over faults of max over gating checks of effect / limit.
struct detectability {
  bool judged = false;  // false: the case never got that far
  double value = 0;
  std::string weakest_fault, by_check;                   // of the minimum
  std::vector<std::pair<std::string, double>> by_fault;  // every target fault
  static constexpr double floor = 4;
};

struct case_record {
  std::string name, definition_sha256;
  std::uint64_t seed = 0;
  verdict decided = verdict::suite_error;
  fail_kind kind = fail_kind::none;
  std::string reason;  // one line for a person; empty on pass
  std::vector<check_result> checks;
  detectability sees;
  std::int64_t rows_checked = 0, rows_total = 0;
  std::optional<numerics> declared;
  std::optional<profile> delivers;
  std::vector<std::string> remarks, unobserved;
  std::string captured_output;
  std::string repro;  // one command that reproduces the case alone
  samples timing;
  double elapsed_s = 0;
};

struct implementation_record {
  std::string name, version, description, path, sha256;
  std::string device = {};  // "NVIDIA H200, CUDA driver 13.0"; empty: the CPU. In reports part of the environment
};

// A case that a list names no longer, because the case itself is wrong (docs/conformance.md).
struct withdrawn_case {
  std::string name;  // without its seed
  std::string reason;
  bool operator==(const withdrawn_case&) const = default;
};

// A failure that a fuzz run found, and the smallest case like it (conformance/shrink.h).
struct found_failure {
  std::string what;             // "fail K1", "crash"
  std::string found, smallest;  // names of cases; both are among the cases of the run
  bool finished = false;        // false: time was up before nothing simpler failed any more
  bool operator==(const found_failure&) const = default;
};

// A run over random cases, drawn from the run's seed.
struct fuzz_record {
  double seconds = 0;                   // asked for
  std::vector<found_failure> failures;  // one of each kind and operator
  bool operator==(const fuzz_record&) const = default;
};

// A report that went into a merged one.
struct merged_source {
  std::string file, start_utc;
  std::vector<std::string> argv;
  std::int64_t shard_index = 0, shard_count = 1;
  std::int64_t cases = 0;
  bool partial = false;
  bool operator==(const merged_source&) const = default;
};

struct run_record {
  std::string suite_version, suite_commit;
  bool suite_dirty = false;
  std::map<std::string, std::string> lists;  // list name -> sha256 of its text
  std::string selftest = "none";
  std::vector<std::string> argv;
  std::string start_utc;  // 2026-01-31T12:00:00Z
  std::uint64_t seed = 0;
  std::int64_t shard_index = 0, shard_count = 1;
  bool partial = false;  // interrupted
  std::string level;
  std::vector<withdrawn_case> withdrawn;  // of what was chosen of the level
  std::optional<fuzz_record> fuzz;        // of random cases instead of a level
  nlohmann::json environment = nlohmann::json::object();
  implementation_record implementation;
  std::vector<case_record> cases;
  std::vector<merged_source> merged_from;  // of a report that was put together of others (reports/merge.h)
  std::vector<run_part> parts;             // beside the cases
};

// The case failed, and not because nothing could be said about it: exit code 1.
bool is_failure(const case_record& c);

// Exit code of a finished run (docs/verdicts.md). Of random cases some see nothing; they count as not verified, and as
// nothing else, unless none was verified. A part that was not run counts as an interrupt does.
int exit_code_of(const run_record& run);

// With every text in it printable: an environment is what foreign files and programs say.
nlohmann::json printable_json(const nlohmann::json& in);

nlohmann::json to_report_json(const implementation_record& record);
nlohmann::json to_report_json(const run_record& run);  // msabench.report/1
nlohmann::json to_report_json(const case_record& record);

}  // namespace msabench

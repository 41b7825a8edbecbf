// SPDX-License-Identifier: Apache-2.0
// msabench_gtest: the conformance cases as GoogleTest tests, with its filters, shards and XML. Suite: the operator;
// test: the rest of the case name.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "cli/front_ends/environment.h"
#include "conformance/accuracy.h"
#include "conformance/lists.h"
#include "conformance/runner.h"
#include "core/environment_error.h"
#include "core/error.h"
#include "core/units.h"
#include "core/verdict.h"
#include "host/interrupt.h"
#include "reports/text.h"

namespace msabench {
namespace {

constexpr const char* help = R"(msabench_gtest: the conformance cases of msabench as GoogleTest tests.

  MSABENCH_IMPL       name or file of the implementation (required to run)
  MSABENCH_LEVEL      list of cases: smoke (default), core, full
  MSABENCH_SEED       seed of all inputs, default 0
  MSABENCH_DEVICE, MSABENCH_THREADS, MSABENCH_TIMEOUT_S   as the options of `msabench check`

  GTEST_TOTAL_SHARDS, GTEST_SHARD_INDEX   a shard of the level, as --shard of `msabench check`; then --gtest_filter

Exit codes are those of `msabench check`: 0 all verified, 1 failed, 2 not all verified, 3 nothing ran.

)";

// What the tests of this process share; the executor lives as long as they run.
struct session {
  front_end_setup setup;
  std::unique_ptr<executor> on, naive;  // naive: null where it is what runs
  run_record run;
  bool refused_by_environment = false;
};

class conformance_case : public testing::Test {
 public:
  conformance_case(session* of, case_spec which) : session_(of), case_(std::move(which)) {}
  void TestBody() override;

 private:
  void judge();

  session* session_;
  case_spec case_;
};

void conformance_case::TestBody() {
  if (session_ == nullptr) throw suite_error("a listed case was run without an implementation");
  if (interrupted()) GTEST_SKIP() << "interrupted before this case";
  try {
    judge();
  } catch (const environment_error& e) {
    session_->refused_by_environment = true;
    GTEST_FAIL() << "not verified: " << e.what();
  } catch (const std::exception&) {
    if (!interrupted()) throw;
    GTEST_FAIL() << "not verified: interrupted";
  }
}

void conformance_case::judge() {
  require_memory(case_);
  if (!session_->on) {
    session_->on = make_worker_executor(session_->setup.impl, session_->setup.how);
    session_->naive = make_naive_beside(session_->setup.impl, session_->setup.how);
  }
  const case_record record =
      run_case(*session_->on, case_, {session_->setup.timeout_s, session_->setup.repro_suffix, session_->naive.get()});
  if (interrupted()) GTEST_FAIL() << "not verified: interrupted";  // the verdict is that of our own signal
  session_->run.cases.push_back(record);
  RecordProperty("verdict", std::string(name(record.decided)));
  RecordProperty("definition_sha256", record.definition_sha256);
  RecordProperty("repro", record.repro);
  for (const auto& c : record.checks)
    if (c.id == "K6n" && c.observed) RecordProperty("errors_to_naive", fmt::format("{:.4g}", c.value));
  switch (record.decided) {
    case verdict::pass:
    case verdict::quality_warning:
    case verdict::waived:
      SUCCEED();
      return;
    case verdict::unsupported:
      GTEST_SKIP() << record.reason;
    default:
      ADD_FAILURE() << text_case_line(record, false) << text_case_detail(record, false);
  }
}

void add_tests(session* of, const std::vector<case_spec>& cases) {
  for (const case_spec& c : cases) {
    const std::string whole = name(c), suite = whole.substr(0, whole.find('/'));
    testing::RegisterTest(suite.c_str(), whole.substr(suite.size() + 1).c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          [of, c]() -> conformance_case* { return new conformance_case(of, c); });
  }
}

// GoogleTest would deal its tests out one by one, whatever they cost and whichever each shard has to run.
void take_shard_of_environment(case_selection& wanted) {
  constexpr const char* count_variable = "GTEST_TOTAL_SHARDS";
  constexpr const char* index_variable = "GTEST_SHARD_INDEX";
  const char* const count = std::getenv(count_variable);
  const char* const index = std::getenv(index_variable);
  if (count == nullptr && index == nullptr) return;
  if (count == nullptr || index == nullptr)
    bad_input(count ? count_variable : index_variable, count ? count : index, "stands alone",
              fmt::format("set {} and {}, or none", count_variable, index_variable));
  const auto shards = parse_uint64(count_variable, count), which = parse_uint64(index_variable, index);
  if (shards < 1 || shards > most_shards)
    bad_input(count_variable, count, "is out of range", fmt::format("1 to {}", most_shards));
  if (which >= shards) bad_input(index_variable, index, "is out of range", fmt::format("0 to {}", shards - 1));
  wanted.shard_count = static_cast<std::int64_t>(shards);
  wanted.shard_index = static_cast<std::int64_t>(which);
  ::unsetenv(count_variable);
  ::unsetenv(index_variable);
}

int run(int argc, char** argv) {
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]) == "--help") fmt::print("{}", help);
  testing::InitGoogleTest(&argc, argv);
  const bool asks_help = argc > 1 && std::string_view(argv[1]) == "--help";
  if (argc > 1 && !asks_help) bad_input("argument", argv[1], "unknown", "see msabench_gtest --help");
  const bool only_lists = GTEST_FLAG_GET(list_tests) || asks_help;
  case_selection wanted;
  wanted.seed = seed_from_environment();
  if (!only_lists) take_shard_of_environment(wanted);
  const case_list list = load_list(level_from_environment());
  const auto cases = choose(list, wanted);
  for (const auto& c : list.withdrawn) fmt::print(stderr, "withdrawn, not run: {}: {}\n", c.name, c.reason);
  if (only_lists) {
    add_tests(nullptr, cases);
    return RUN_ALL_TESTS();
  }
  session shared{setup_from_environment(), nullptr, nullptr, {}};
  add_tests(&shared, cases);
  install_interrupt_handler();
  const int failed = RUN_ALL_TESTS();
  const auto& all = *testing::UnitTest::GetInstance();
  shared.run.partial |= interrupted();
  if (shared.run.partial) return exit_code_of(shared.run);
  if (shared.refused_by_environment) return exit_code::environment_refused;
  if (shared.run.cases.empty() && failed == 0) {
    fmt::print(stderr, "msabench_gtest: nothing ran: {} tests selected of {}; see --gtest_list_tests\n",
               all.test_to_run_count(), all.total_test_count());
    return exit_code::nothing_verified;
  }
  const int code = exit_code_of(shared.run);
  // What GoogleTest holds against a test and the suite does not is the suite's fault.
  return code == exit_code::ok && failed != 0 ? exit_code::suite : code;
}

}  // namespace
}  // namespace msabench

int main(int argc, char** argv) {
  return msabench::guarded("msabench_gtest", [&] { return msabench::run(argc, argv); });
}

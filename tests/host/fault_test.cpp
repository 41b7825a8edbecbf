// SPDX-License-Identifier: Apache-2.0
// One faulty plugin after the other: the right outcome, entry point and words, and a healthy case afterwards.
#include <chrono>

#include "core/error.h"
#include "tests/host/small_case.h"

using namespace msabench;
using namespace msabench::host_test;

namespace {

#ifdef MSABENCH_SANITIZED
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

struct end {
  std::string plugin;
  outcome result;
  std::string entry, message;  // a part of the message
};

std::ostream& operator<<(std::ostream& out, const end& e) { return out << e.plugin; }

std::string test_name(const testing::TestParamInfo<end>& info) { return info.param.plugin; }

class abnormal_end : public testing::TestWithParam<end> {};

TEST_P(abnormal_end, is_told_and_contained) {
  const end& want = GetParam();
  // Room enough on a busy machine, unless the end of the time is what is waited for.
  const bool hangs = want.result == outcome::timed_out;
  const auto on = worker_of(want.plugin, hangs ? 3 : 60);
  for (int again = 0; again < 2; ++again) {
    const auto start = std::chrono::steady_clock::now();
    const observation seen = run_case(*on, two_launches(hangs ? 1 : 60));
    EXPECT_EQ(seen.result, want.result) << seen.message;
    EXPECT_EQ(seen.entry, want.entry);
    EXPECT_NE(seen.message.find(want.message), std::string::npos) << seen.message;
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  }
  const auto healthy = worker_of("naive");
  EXPECT_EQ(run_case(*healthy, two_launches()).result, outcome::completed);
}

INSTANTIATE_TEST_SUITE_P(
    fault, abnormal_end,
    testing::Values(end{"crash_get", outcome::crashed, "get", "signal 11 (Segmentation fault)"},
                    end{"crash_query", outcome::crashed, "query", "signal 11 (Segmentation fault)"},
                    end{"crash_plan", outcome::crashed, "plan", "signal 11 (Segmentation fault)"},
                    end{"crash_workspace", outcome::crashed, "workspace", "signal 11 (Segmentation fault)"},
                    end{"crash_run", outcome::crashed, "run", "signal 11 (Segmentation fault)"},
                    end{"crash_destroy", outcome::crashed, "destroy", "signal 11 (Segmentation fault)"},
                    end{"abort_run", outcome::crashed, "run", "signal 6 (Aborted)"},
                    end{"calls_exit", outcome::crashed, "run", "exit(0) called"},
                    end{"calls_exit_now", outcome::crashed, "run", "exit(0) called"},
                    end{"throws", outcome::crashed, "run", "exception: thrown from run"},
                    end{"hang_get", outcome::timed_out, "get", "no end within 3 s"},
                    end{"hang_query", outcome::timed_out, "query", "no end within 3 s"},
                    end{"hang_run", outcome::timed_out, "run", "no end within 1 s"}),
    test_name);

INSTANTIATE_TEST_SUITE_P(
    answer, abnormal_end,
    testing::Values(end{"refuse_all", outcome::unsupported, "query", "nothing is supported"},
                    end{"plan_refuses", outcome::nonsense, "plan", "plan refused what query accepted: block 128"},
                    end{"nonsense_nan", outcome::nonsense, "query", "numerics.exp_rel_error = nan"},
                    end{"nonsense_profile", outcome::nonsense, "query", "profile.out_id_order = 99"},
                    end{"error_no_text", outcome::error_status, "run", ""},
                    end{"error_null_text", outcome::error_status, "run", ""},
                    end{"unsupported_in_run", outcome::unsupported, "run", "not on Mondays"},
                    end{"invalid_status", outcome::nonsense, "run", "status 77 is no msabench_status"},
                    end{"writes_on_error", outcome::error_status, "run", "ran out half way"}),
    test_name);

struct damage_case {
  std::string plugin;
  violation::kind what;
  std::optional<slot> where;
  std::string detail;
};

std::ostream& operator<<(std::ostream& out, const damage_case& d) { return out << d.plugin; }

std::string damage_name(const testing::TestParamInfo<damage_case>& info) { return info.param.plugin; }

class damaging : public testing::TestWithParam<damage_case> {};

TEST_P(damaging, is_a_violation_that_says_where) {
  const damage_case& want = GetParam();
  const observation seen = run_case(*worker_of(want.plugin), two_launches());
  const violation* found = find(seen, want.what);
  ASSERT_TRUE(found) << seen.message;
  EXPECT_EQ(found->where, want.where);
  EXPECT_EQ(found->entry, "run");
  EXPECT_NE(found->detail.find(want.detail), std::string::npos) << found->detail;
  for (const violation& v : seen.violations) EXPECT_EQ(v.what, want.what) << v.detail;
}

INSTANTIATE_TEST_SUITE_P(
    fault, damaging,
    testing::Values(damage_case{"write_before", violation::kind::out_of_bounds, slot::out,
                                "out was written 16 bytes before its first element"},
                    damage_case{"write_behind", violation::kind::out_of_bounds, slot::out, "out was written"},
                    damage_case{"write_behind_workspace", violation::kind::out_of_bounds, std::nullopt,
                                "workspace, 0 bytes past its end"},
                    damage_case{"change_input", violation::kind::input_modified, std::nullopt, "changed"},
                    damage_case{"writes_on_error", violation::kind::wrote_on_error, slot::out, "although run failed"},
                    damage_case{"flips_fp", violation::kind::floating_point_mode, std::nullopt, "rounding changed"},
                    damage_case{"signal_handler", violation::kind::signal_handler, std::nullopt, "handler of SIGSEGV"}),
    damage_name);

}  // namespace

// A parallel region of one thread makes libgomp allocate a team each time; naive goes without the region then.
TEST(fault, one_thread_needs_no_memory_of_its_own) {
  if (sanitized) GTEST_SKIP() << "no memory limits under sanitizers";
  run_spec how = two_launches();
  how.launches = 20;
  const observation seen = run_case(*worker_of("naive", 20, 1), how);
  EXPECT_EQ(seen.result, outcome::completed) << seen.message;
  EXPECT_EQ(find(seen, violation::kind::memory_limit), nullptr);
}

TEST(fault, allocation_in_run_is_seen_from_the_second_launch_on) {
  if (sanitized) GTEST_SKIP() << "no memory limits under sanitizers";
  const observation seen = run_case(*worker_of("allocates_run"), two_launches());
  EXPECT_EQ(seen.result, outcome::completed) << seen.message;
  EXPECT_EQ(seen.launches.size(), 2u);
  const violation* found = find(seen, violation::kind::memory_limit);
  ASSERT_TRUE(found);
  EXPECT_NE(found->detail.find("none left"), std::string::npos) << found->detail;

  run_spec how = two_launches();
  how.limit_memory = false;
  EXPECT_EQ(find(run_case(*worker_of("allocates_run"), how), violation::kind::memory_limit), nullptr);
}

TEST(fault, eating_memory_ends_the_worker_not_the_machine) {
  if (sanitized) GTEST_SKIP() << "no memory limits under sanitizers";
  const observation seen = run_case(*worker_of("eats_memory"), two_launches());
  EXPECT_EQ(seen.result, outcome::crashed);
  EXPECT_EQ(seen.entry, "run");
  EXPECT_NE(seen.message.find("signal 6"), std::string::npos) << seen.message;
}

TEST(fault, a_second_launch_that_crashes_without_a_limit_too_is_a_crash) {
  const observation seen = run_case(*worker_of("crash_second_run"), two_launches());
  EXPECT_EQ(seen.result, outcome::crashed);
  EXPECT_EQ(seen.entry, "run");
  EXPECT_EQ(seen.launches.size(), 1u);
  EXPECT_FALSE(find(seen, violation::kind::memory_limit));
}

TEST(fault, what_is_printed_is_captured_and_harmless) {
  const auto on = worker_of("prints_stdout");
  const observation seen = run_case(*on, two_launches());
  EXPECT_EQ(seen.result, outcome::completed);
  EXPECT_TRUE(seen.violations.empty());
  EXPECT_EQ(seen.captured_output, "hello from a plugin\nhello from a plugin\n");
  EXPECT_EQ(on->query(make_problem(parse_case(attend_name))).captured_output, "") << "output of another case";
}

TEST(fault, a_mode_changed_at_load_is_reset_and_a_remark) {
  const observation seen = run_case(*worker_of("flips_fp_load"), two_launches());
  EXPECT_EQ(seen.result, outcome::completed) << seen.message;
  EXPECT_TRUE(seen.violations.empty());
  ASSERT_FALSE(seen.remarks.empty());
  EXPECT_NE(seen.remarks[0].find("changed at load, reset"), std::string::npos) << seen.remarks[0];
}

TEST(fault, no_plugin_at_all_is_bad_input) {
  const std::pair<std::string, std::string> cases[] = {{"no_symbol", "exports no msabench_plugin_get"},
                                                       {"wrong_major", "speaks plugin interface 2."},
                                                       {"get_null", "returned NULL"},
                                                       {"null_name", "name is NULL"},
                                                       {"null_run", "run is NULL"}};
  for (const auto& [name, words] : cases) {
    const auto on = worker_of(name);
    try {
      on->info();
      ADD_FAILURE() << name << " was accepted";
    } catch (const usage_error& e) {
      EXPECT_EQ(e.what_is_wrong().field, "--impl");
      EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
    }
    EXPECT_THROW(make_in_process_executor(plugin(name), {})->info(), usage_error) << name;
  }
}

TEST(fault, a_plugin_that_crashes_in_get_still_has_a_name) {
  const auto on = worker_of("crash_get");
  EXPECT_EQ(on->info().name, "crash_get");
  EXPECT_EQ(on->query(make_problem(parse_case(attend_name))).result, outcome::crashed);
}

TEST(fault, in_process_sees_what_can_be_survived) {
  const auto here = [](const std::string& name) {
    return run_case(*make_in_process_executor(plugin(name), {}), two_launches());
  };
  // After an exception the plan is left alone, and the leak checker would say so.
  if (!sanitized) {
    EXPECT_EQ(here("throws").message, "exception: thrown from run");
  }
  EXPECT_TRUE(find(here("flips_fp"), violation::kind::floating_point_mode));
  EXPECT_TRUE(find(here("write_before"), violation::kind::out_of_bounds));
  EXPECT_TRUE(find(here("change_input"), violation::kind::input_modified));
}

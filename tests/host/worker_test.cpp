// SPDX-License-Identifier: Apache-2.0
// The worker executor on a healthy plugin: what is observed, and what is left behind.
#include <dirent.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

#include "core/error.h"
#include "host/interrupt.h"
#include "tests/host/small_case.h"

using namespace msabench;
using namespace msabench::host_test;

namespace {

int open_descriptors() {
  int count = 0;
  DIR* folder = ::opendir("/proc/self/fd");
  while (::readdir(folder)) ++count;
  ::closedir(folder);
  return count;
}

bool no_children() { return ::waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD; }

bool same_bytes(const tensor_view& a, const tensor_view& b) {
  const auto bytes = static_cast<std::size_t>(a.desc.span_elements() * size_bytes(a.desc.type));
  return a.desc == b.desc && std::memcmp(a.data, b.data, bytes) == 0;
}

}  // namespace

TEST(worker, info_names_the_plugin) {
  const auto on = worker_of("naive");
  const implementation_record info = on->info();
  EXPECT_EQ(info.name, "naive");
  EXPECT_FALSE(info.version.empty());
  EXPECT_FALSE(info.description.empty());
  EXPECT_EQ(info.path, plugin_path("naive"));
  EXPECT_EQ(info.sha256.size(), 64u);
}

TEST(worker, two_launches_of_naive_are_equal_and_undamaged) {
  const auto on = worker_of("naive");
  for (const std::string_view name : {attend_name, select_name}) {
    const observation seen = run_case(*on, two_launches(), name);
    ASSERT_EQ(seen.result, outcome::completed) << seen.message;
    EXPECT_EQ(seen.message, "");
    EXPECT_TRUE(seen.violations.empty()) << seen.violations[0].detail;
    EXPECT_EQ(seen.captured_output, "");
    ASSERT_EQ(seen.launches.size(), 2u);
    EXPECT_EQ(seen.launches[0].same_as, -1);
    EXPECT_EQ(seen.launches[1].same_as, 0);
    EXPECT_EQ(seen.launches[1].index, 1);
    EXPECT_EQ(seen.launches[0].memory, seen.launches[1].memory);
  }
}

TEST(worker, query_answers_numerics_and_profile) {
  const auto on = worker_of("naive");
  const observation seen = on->query(make_problem(parse_case(attend_name)));
  ASSERT_EQ(seen.result, outcome::completed) << seen.message;
  ASSERT_TRUE(seen.answered);
  EXPECT_EQ(seen.answered->declared.pv_acc, fp32);
  EXPECT_EQ(seen.answered->declared.out_store, fp32);
}

TEST(worker, unsupported_problem_comes_with_the_plugins_words) {
  const auto on = worker_of("naive");
  problem p = make_problem(parse_case(attend_name));
  p.operation = op::kl;
  const observation seen = on->query(p);
  EXPECT_EQ(seen.result, outcome::unsupported);
  EXPECT_EQ(seen.entry, "query");
  EXPECT_NE(seen.message, "");
  EXPECT_FALSE(seen.answered);
}

TEST(worker, outputs_equal_those_of_the_same_calls_in_this_process) {
  const auto apart = worker_of("naive");
  const auto here = make_in_process_executor(plugin("naive"), {});
  const observation a = run_case(*apart, two_launches()), b = run_case(*here, two_launches());
  ASSERT_EQ(a.launches.size(), 2u);
  ASSERT_EQ(b.launches.size(), 2u) << b.message;
  EXPECT_EQ(a.launches[0].outputs_sha256, b.launches[0].outputs_sha256);
  ASSERT_TRUE(a.launches[0].outputs.contains(slot::out));
  ASSERT_TRUE(a.launches[0].outputs.contains(slot::lse));
  EXPECT_TRUE(same_bytes(a.launches[0].outputs.at(slot::out), b.launches[0].outputs.at(slot::out)));
  EXPECT_TRUE(b.violations.empty());
  EXPECT_EQ(b.remarks.size(), 1u);
}

TEST(worker, twenty_launches_and_a_second_plan_at_the_same_time) {
  const auto on = worker_of("naive");
  run_spec how = two_launches();
  how.launches = 20;
  how.second_plan = true;
  const observation seen = run_case(*on, how);
  ASSERT_EQ(seen.result, outcome::completed) << seen.message;
  EXPECT_TRUE(seen.violations.empty());
  ASSERT_EQ(seen.launches.size(), 22u);
  for (int i = 0; i < 22; ++i) {
    EXPECT_EQ(seen.launches[static_cast<std::size_t>(i)].index, i);
    EXPECT_EQ(seen.launches[static_cast<std::size_t>(i)].plan, i == 21 ? 1 : 0);
    EXPECT_EQ(seen.launches[static_cast<std::size_t>(i)].same_as, i == 0 ? -1 : 0);
  }
}

TEST(worker, only_the_last_launch_is_kept_if_so_asked) {
  const auto on = worker_of("naive");
  run_spec how = two_launches();
  how.launches = 3;
  how.keep_every_launch = false;
  const observation seen = run_case(*on, how);
  ASSERT_EQ(seen.launches.size(), 1u) << seen.message;
  EXPECT_EQ(seen.launches[0].index, 2);
}

TEST(worker, a_run_spec_that_is_not_done_is_refused) {
  const auto on = worker_of("naive");
  run_spec how;
  how.timing.enabled = true;
  EXPECT_THROW(run_case(*on, how), suite_error);
  how = {};
  how.streams = 3;
  EXPECT_THROW(run_case(*on, how), suite_error);
}

TEST(worker, leaves_neither_descriptors_nor_children) {
  const int before = open_descriptors();
  {
    const auto healthy = worker_of("naive");
    const auto crashing = worker_of("crash_run");
    for (int i = 0; i < 25; ++i) {
      EXPECT_EQ(run_case(*healthy, two_launches()).result, outcome::completed);
      EXPECT_EQ(run_case(*crashing, two_launches()).result, outcome::crashed);
    }
    EXPECT_LE(open_descriptors(), before + 4);
  }
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_TRUE(no_children());
}

TEST(worker, interrupt_ends_a_wait) {
  const auto on = worker_of("hang_run");
  install_interrupt_handler();
  std::thread impatient([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    ::kill(::getpid(), SIGINT);
  });
  const auto start = std::chrono::steady_clock::now();
  const observation seen = run_case(*on, two_launches(60));
  impatient.join();
  EXPECT_EQ(seen.result, outcome::timed_out);
  EXPECT_EQ(seen.message, "interrupted");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_TRUE(interrupted());
  // Nothing starts afterwards.
  EXPECT_EQ(on->query(make_problem(parse_case(attend_name))).message, "interrupted");
  EXPECT_TRUE(no_children());
  clear_interrupt();
}

// SPDX-License-Identifier: Apache-2.0
// The rules of the plugin interface that are not about refusals.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cfenv>
#include <cstring>
#include <fstream>
#include <thread>

#include "tests/kernels/each_plugin.h"
#include "tests/kernels/small_attend.h"
#include "tests/kernels/small_select.h"

using namespace msabench::plugin_test;

namespace {

/// A struct as a host of a later minor version has it.
struct longer_problem {
  msabench_problem known;
  std::int32_t later[4];
};

class rules : public each_plugin {};

MSABENCH_FOR_EACH_PLUGIN(rules);

}  // namespace

TEST_P(rules, longer_structs_count_if_they_are_used) {
  small_attend test({});
  longer_problem problem{test.problem, {}};
  problem.known.struct_size = sizeof problem;
  msabench_capability capability{};
  capability.struct_size = sizeof capability;
  EXPECT_EQ(plugin()->query(&problem.known, &capability), MSABENCH_OK);
  problem.later[2] = 1;
  EXPECT_EQ(plugin()->query(&problem.known, &capability), MSABENCH_UNSUPPORTED);
}

TEST_P(rules, shorter_structs_read_as_zero_and_are_not_overrun) {
  small_attend test({});
  msabench_problem problem = test.problem;
  problem.struct_size = offsetof(msabench_problem, profile);
  std::memset(&problem.profile, 0xff, sizeof problem.profile);
  msabench_capability capability;
  std::memset(&capability, 0xa5, sizeof capability);
  capability.struct_size = offsetof(msabench_capability, profile);
  ASSERT_EQ(plugin()->query(&problem, &capability), MSABENCH_OK) << plugin()->last_error();
  EXPECT_EQ(capability.struct_size, offsetof(msabench_capability, profile));
  EXPECT_GT(capability.numerics.chain_out, 0u);
  EXPECT_EQ(capability.profile.struct_size, 0xa5a5a5a5u);
}

TEST_P(rules, declares_what_it_does) {
  small_attend test({.block = 16, .topk = 3, .type = bf16_type});
  session plan(plugin(), test.problem);
  const msabench_numerics& numerics = plan.capability().numerics;
  EXPECT_EQ(numerics.struct_size, sizeof numerics);
  EXPECT_EQ(numerics.operand.code, bf16_type.code);
  EXPECT_EQ(numerics.p_operand.code, fp32_type.code);
  // naive: the keys of a block one after the other, then the blocks. cpu: chains of 64, and no longer than 48 keys.
  const bool naive = GetParam().file == std::string("naive");
  EXPECT_EQ(numerics.chain_out, naive ? 19u : 48u);
  EXPECT_LE(numerics.chain_row_sum, naive ? 19u : 48u);
  EXPECT_GT(numerics.chain_row_sum, 0u);
  EXPECT_EQ(plan.capability().profile.repeatable, 1);
}

TEST_P(rules, other_devices_get_no_plugin) {
  EXPECT_EQ(plugin()->name, std::string(GetParam().file));
  EXPECT_EQ(load_plugin(path(), 2, {2, 0}), nullptr);
}

TEST_P(rules, dirty_workspaces_threads_and_repeats_give_the_same_bits) {
  small_attend test({.hq = 8, .hkv = 4, .d = 32, .type = bf16_type});
  session plan(plugin(), test.problem);
  arguments args = test.args();
  ASSERT_EQ(plan.run(args, 0x00), MSABENCH_OK);
  const auto first = test.out.bytes();
  test.out.poison();
  ASSERT_EQ(plan.run(args, 0xff), MSABENCH_OK);
  EXPECT_EQ(test.out.bytes(), first);
  const msabench_plugin* alone = load_plugin(path(), 1);
  test.out.poison();
  {
    session single(alone, test.problem);
    ASSERT_EQ(single.run(args), MSABENCH_OK);
  }
  load_plugin(path(), 2);
  EXPECT_EQ(test.out.bytes(), first);
}

TEST_P(rules, one_plan_serves_other_lengths) {
  small_attend test({.sequences = {{4, 60}, {2, 33}}});
  session plan(plugin(), test.problem);
  arguments args = test.args();
  ASSERT_EQ(plan.run(args), MSABENCH_OK);
  ASSERT_EQ(test.fault().value_or("none"), "none");
  test.kv_lens.set({0}, 41);
  test.kv_lens.set({1}, 12);
  for (std::int64_t row = 0; row < test.tokens(); ++row) {
    for (std::int64_t head = 0; head < 2; ++head) {
      test.ids.set({row, head, 0}, 0);
      test.ids.set({row, head, 1}, 1);
      test.ids.set({row, head, 2}, row < 4 ? 4 : -1);
    }
  }
  ASSERT_EQ(plan.run(args), MSABENCH_OK);
  EXPECT_EQ(test.fault().value_or("none"), "none");
}

TEST_P(rules, two_plans_at_once) {
  const auto work = [this](unsigned seed, std::string& verdict) {
    small_attend test({.sequences = {{20, 90}, {3, 70}}}, seed);
    session plan(plugin(), test.problem);
    arguments args = test.args();
    for (int repeat = 0; repeat < 20 && verdict.empty(); ++repeat) {
      test.out.poison();
      if (plan.run(args) != MSABENCH_OK) verdict = plugin()->last_error();
      if (const auto fault = test.fault()) verdict = *fault;
    }
  };
  std::string first, second;
  std::thread other(work, 1, std::ref(first));
  work(2, second);
  other.join();
  EXPECT_EQ(first, "");
  EXPECT_EQ(second, "");
}

TEST_P(rules, leaves_the_floating_point_mode_alone) {
  small_attend test({});
  session plan(plugin(), test.problem);
  arguments args = test.args();
  ASSERT_EQ(std::fesetround(FE_TOWARDZERO), 0);
  plan.run(args);
  const int mode = std::fegetround();
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(mode, FE_TOWARDZERO);
}

#ifndef MSABENCH_SANITIZED  // the sanitizers' own shadow memory grows
TEST_P(rules, a_second_run_needs_no_memory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto child = [this] {
    small_attend test({});
    small_select choice({});
    session plan(plugin(), test.problem), choice_plan(plugin(), choice.problem);
    arguments args = test.args(), choice_args = choice.args();
    if (plan.run(args) != MSABENCH_OK || choice_plan.run(choice_args) != MSABENCH_OK) std::_Exit(2);
    std::ifstream statm("/proc/self/statm");
    rlim_t pages = 0;
    statm >> pages;
    const rlim_t now = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
    const rlimit limit{now, now};
    if (setrlimit(RLIMIT_AS, &limit) != 0) std::_Exit(3);
    if (plan.run(args) != MSABENCH_OK || choice_plan.run(choice_args) != MSABENCH_OK) std::_Exit(4);
    std::_Exit(test.fault() || choice.fault() ? 5 : 0);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "");
}
#endif

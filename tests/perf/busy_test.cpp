// SPDX-License-Identifier: Apache-2.0
#include "perf/busy.h"

#include <gtest/gtest.h>

#include <memory>

namespace msabench {
namespace {

// A machine of two CPUs on which others take `others` and the hypervisor `steal` of all time, and this process `own`.
machine_watch machine(double others, double steal, double own) {
  struct state {
    double at_s = 0;
  };
  const auto s = std::make_shared<state>();
  return {[=]() -> std::optional<cpu_reading> {
            const double all = 2 * s->at_s;
            return cpu_reading{100 + all * (others + own), 1000 + all * (1 - others - own - steal), 5 + all * steal, 3,
                               0};
          },
          [s](double seconds) { s->at_s += seconds; }, [=] { return 2 * s->at_s * own; }};
}

std::string verdict_of(double others, double steal, double own) {
  const auto seen = watch_machine(machine(others, steal, own), 0.5);
  return seen ? too_busy(*seen, {}) : "nothing seen";
}

TEST(busy, a_quiet_machine_is_not_refused) {
  EXPECT_EQ(verdict_of(0, 0, 0), "");
  EXPECT_EQ(verdict_of(0.03, 0.01, 0), "");
}

TEST(busy, own_work_is_no_neighbour) {
  EXPECT_EQ(verdict_of(0, 0, 0.9), "");
  EXPECT_NE(verdict_of(0.1, 0, 0.9), "");
}

TEST(busy, neighbours_and_hypervisor_are_told_apart) {
  EXPECT_NE(verdict_of(0.5, 0, 0).find("other processes used 50.0 %"), std::string::npos);
  EXPECT_NE(verdict_of(0, 0.1, 0).find("hypervisor gave 10.0 %"), std::string::npos);
}

TEST(busy, limits_are_those_given) {
  const auto seen = watch_machine(machine(0.2, 0, 0), 1);
  ASSERT_TRUE(seen);
  EXPECT_NEAR(seen->others, 0.2, 1e-12);
  EXPECT_EQ(too_busy(*seen, {0.25, 0.02}), "");
  EXPECT_NE(too_busy(*seen, {0.15, 0.02}), "");
}

TEST(busy, too_short_a_look_says_nothing) { EXPECT_EQ(too_busy({1, 1, 9, 0, 0.02}, {}), ""); }

TEST(busy, a_system_that_does_not_tell_is_not_refused) {
  machine_watch blind{[] { return std::optional<cpu_reading>(); }, [](double) {}, [] { return 0.0; }};
  EXPECT_FALSE(watch_machine(blind, 0.5));
}

}  // namespace
}  // namespace msabench

// SPDX-License-Identifier: Apache-2.0
#include "core/verdict.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "core/perturbation.h"

namespace msabench {
namespace {

TEST(verdict, names_are_distinct_and_found_again) {
  std::set<std::string_view> seen;
  for (int i = 0; i <= static_cast<int>(verdict::suite_error); ++i) {
    const auto v = static_cast<verdict>(i);
    EXPECT_TRUE(seen.insert(name(v)).second) << name(v);
    EXPECT_EQ(verdict_from_name(name(v)), v);
  }
  EXPECT_EQ(name(verdict::quality_warning), "quality-warning");
  EXPECT_EQ(name(verdict::broken_promise), "broken-promise");
  EXPECT_EQ(name(verdict::device_lost), "device-lost");
  EXPECT_EQ(name(verdict::xpass), "xpass");
  EXPECT_EQ(name(verdict::suite_error), "suite-error");
  for (const auto* text : {"", "Pass", "pass ", "passed", "broken_promise"})
    EXPECT_FALSE(verdict_from_name(text)) << text;
}

TEST(fail_kind, names_are_distinct_and_found_again) {
  std::set<std::string_view> seen;
  for (int i = 0; i <= static_cast<int>(fail_kind::contract); ++i) {
    const auto k = static_cast<fail_kind>(i);
    EXPECT_TRUE(seen.insert(name(k)).second) << name(k);
    EXPECT_EQ(fail_kind_from_name(name(k)), k);
  }
  EXPECT_EQ(name(fail_kind::none), "");
  EXPECT_EQ(name(fail_kind::out_of_bounds), "out-of-bounds");
  EXPECT_EQ(name(fail_kind::contract), "contract");
  EXPECT_FALSE(fail_kind_from_name("none"));
}

TEST(perturbation, names_are_distinct_and_found_again) {
  std::set<std::string_view> seen;
  for (const auto p : all_perturbations()) {
    EXPECT_TRUE(seen.insert(name(p)).second) << name(p);
    EXPECT_EQ(perturbation_from_name(name(p)), p);
  }
  EXPECT_EQ(seen.size(), all_perturbations().size());
  EXPECT_EQ(name(perturbation::accumulate_16bit), "accumulate_16bit");
  EXPECT_FALSE(perturbation_from_name("drop-key"));
}

}  // namespace
}  // namespace msabench

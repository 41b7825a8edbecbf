// SPDX-License-Identifier: Apache-2.0
// Tests that hold for every implementation of the tree: a fixture that runs them on each, and on each instruction set
// that the fast kernels may take on this machine.
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdint>
#include <ostream>
#include <string>

#include "tests/kernels/plugin_session.h"

namespace msabench::plugin_test {

struct tested_plugin {
  const char* name;
  const char* file;                ///< of the plugin, without .so
  std::int64_t forbidden_targets;  ///< of Highway's
};

/// avx2: as on a machine without AVX-512. portable: as on one without any vectors that Highway would choose.
inline constexpr tested_plugin tested_plugins[] = {{"naive", "naive", 0},
                                                   {"cpu", "cpu", 0},
                                                   {"cpu_avx2", "cpu", HWY_AVX3 | HWY_AVX3_DL},
                                                   {"cpu_portable", "cpu", ~std::int64_t{HWY_STATIC_TARGET}}};

class each_plugin : public testing::TestWithParam<tested_plugin> {
 protected:
  void SetUp() override {
    // The choice is one for the process, and the plugin's calls go by it as this program's would.
    hwy::DisableTargets(GetParam().forbidden_targets);
    plugin_ = load_plugin(path());
  }
  void TearDown() override { hwy::DisableTargets(0); }

  std::string path() const { return plugin_path(GetParam().file); }
  const msabench_plugin* plugin() const { return plugin_; }
  const msabench_plugin* with_threads(int threads) const { return load_plugin(path(), threads); }

  /// Runs a problem of one of the small_* classes and compares its results.
  template <class Test>
  void expect_right(Test&& test) {
    session plan(plugin(), test.problem);
    ASSERT_EQ(plan.status(), MSABENCH_OK) << plugin()->last_error();
    arguments args = test.args();
    ASSERT_EQ(plan.run(args), MSABENCH_OK) << plugin()->last_error();
    EXPECT_EQ(test.fault().value_or("none"), "none");
  }

 private:
  const msabench_plugin* plugin_ = nullptr;
};

inline void PrintTo(const tested_plugin& tested, std::ostream* to) { *to << tested.name; }

inline std::string name_of(const testing::TestParamInfo<tested_plugin>& info) { return info.param.name; }

/// The suite of that name over all of them; once per file of tests.
#define MSABENCH_FOR_EACH_PLUGIN(suite) \
  INSTANTIATE_TEST_SUITE_P(kernels, suite, testing::ValuesIn(tested_plugins), name_of)

}  // namespace msabench::plugin_test

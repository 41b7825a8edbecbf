// SPDX-License-Identifier: Apache-2.0
// Plugin `cuda` as far as it answers without a device.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "tests/kernels/plugin_session.h"

namespace msabench::plugin_test {

class cuda_plugin : public testing::Test {
 protected:
  void SetUp() override {
    plugin_ = load_plugin(plugin_path("cuda"), 2, {2, 0});
    ASSERT_NE(plugin_, nullptr);
  }

  std::uint64_t workspace_bytes(const msabench_problem& p) {
    msabench_plan* plan = nullptr;
    EXPECT_EQ(plugin_->plan(&p, &plan), MSABENCH_OK) << plugin_->last_error();
    std::uint64_t bytes = 0;
    std::uint32_t alignment = 0;
    EXPECT_EQ(plugin_->workspace(plan, &bytes, &alignment), MSABENCH_OK);
    plugin_->destroy(plan);
    return bytes;
  }

  const msabench_plugin* plugin_ = nullptr;
};

}  // namespace msabench::plugin_test

// SPDX-License-Identifier: Apache-2.0
// The front that plugins of the tree share: what their functions throw leaves no call.
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <string>

#include "kernels/common/declare.h"
#include "kernels/common/implementation.h"
#include "tests/kernels/plugin_session.h"

using namespace msabench::kernels;
using msabench::plugin_test::empty_problem;

namespace {

bool no_memory = false;

implementation throwing() {
  implementation made{};
  made.name = "throwing";
  made.stores = [](msabench_dtype) { return true; };
  made.storage_types = "all";
  made.profile = canonical_profile;
  made.numerics = fp32_numerics;
  made.scratch_bytes = [](const msabench_problem&, int) -> double {
    if (no_memory) throw std::bad_alloc();
    return 0;
  };
  made.make_state = [](const msabench_problem&, void**) -> msabench_status {
    throw std::runtime_error("a library broke");
  };
  made.free_state = [](void*) {};
  made.combine = [](const combine_call&, const run_context&) {};
  return made;
}

TEST(front, turns_what_is_thrown_into_a_status) {
  static const implementation kernels = throwing();
  msabench_host host{};
  host.struct_size = sizeof host;
  host.threads = 1;
  host.device = {1, 0};
  const msabench_plugin* table = plugin(&host, kernels);
  ASSERT_NE(table, nullptr);
  msabench_problem p = empty_problem(MSABENCH_OP_COMBINE);
  p.hq = p.d = 8;
  p.partial = p.out = {2, 32, 1};
  msabench_capability told{};
  told.struct_size = sizeof told;
  EXPECT_EQ(table->query(&p, &told), MSABENCH_OK) << table->last_error();
  msabench_plan* plan = nullptr;
  EXPECT_EQ(table->plan(&p, &plan), MSABENCH_INTERNAL);
  EXPECT_EQ(plan, nullptr);
  EXPECT_NE(std::string(table->last_error()).find("a library broke"), std::string::npos);
  no_memory = true;
  EXPECT_EQ(table->query(&p, &told), MSABENCH_NO_RESOURCES);
  EXPECT_NE(std::string(table->last_error()).find("none left"), std::string::npos);
  no_memory = false;
}

}  // namespace

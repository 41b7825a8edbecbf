// SPDX-License-Identifier: Apache-2.0
// The checks proper are static assertions in layout.inc; here the C and the C++ object are linked together, as a C
// plugin in a C++ host is.
#include <gtest/gtest.h>
#include <msabench/plugin.h>

extern "C" uint32_t msabench_abi_major_in_c(void);
extern "C" uint32_t msabench_abi_major_in_cpp(void);

TEST(header, c_and_cpp_speak_one_version) {
  EXPECT_EQ(msabench_abi_major_in_c(), 1u);
  EXPECT_EQ(msabench_abi_major_in_cpp(), 1u);
}

// SPDX-License-Identifier: Apache-2.0
// A small vit3d problem: the rotation is compared with small_rope3d, and out and lse with small_attend on the q and k that
// came back.
#pragma once

#include <msabench/plugin.h>

#include <optional>
#include <string>

#include "tests/kernels/small_attend.h"
#include "tests/kernels/small_rope3d.h"

namespace msabench::plugin_test {

class small_vit3d {
 public:
  /// `bare`: nothing but out and lse is asked for, and nothing can be compared.
  explicit small_vit3d(const rope3d_shape& shape = {}, bool bare = false);

  small_rope3d rope;
  small_attend attention;
  bool bare;
  msabench_problem problem;

  arguments args() const;
  /// First difference from the expectation, as text; nothing if there is none.
  std::optional<std::string> fault();
};

}  // namespace msabench::plugin_test

// SPDX-License-Identifier: Apache-2.0
// Builds the `contents` of a buffer: what each stretch of a region holds, in ascending order without gaps.
#pragma once

#include <cstdint>
#include <vector>

#include "inputs/memory.h"

namespace msabench {

class extent_list {
 public:
  // [begin, end) is what it says; stretches are added in ascending order, what lies between them is hole.
  void add(std::uint64_t begin, std::uint64_t end, extent::kind holds);

  // The list up to the end of a region of `bytes`.
  std::vector<extent> finish(std::uint64_t bytes, extent::kind rest);

 private:
  std::vector<extent> all_;
};

}  // namespace msabench

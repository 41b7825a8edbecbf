// SPDX-License-Identifier: Apache-2.0
// Kernels of a few lines for tests: what they leave in memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/ptx/machine.h"

namespace msabench::ptx {

struct few_lines {
  std::uint32_t threads = 32, blocks = 1, cluster = 1;
  schedule order = {};
  int host_threads = 1;
  std::string around = {};                 ///< of the module: functions and variables
  std::vector<std::uint64_t> inputs = {};  ///< the memory of the second parameter
};

/// Runs `body` as a kernel with parameters `out` and `in`, whose addresses are in %out and %in; %i is the thread in the grid. Registers
/// %r0..99 of 32 bits, %d0..99 of 64, %h0..99 of 16, %f0..99 (fp32), %p0..9 are there, and 4 KiB of shared memory `buffer`.
/// Gives the first `words` of out, which held 0xee bytes.
std::vector<std::uint64_t> run_text(const std::string& body, std::size_t words, const few_lines& how = {});

}  // namespace msabench::ptx

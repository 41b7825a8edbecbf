// SPDX-License-Identifier: Apache-2.0
// What a call may not change and leave (rule R6): the thread's floating-point mode and signal mask, the process's
// signal handlers. Taken before a call, compared and put back after it.
#pragma once

#include <csignal>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/observation.h"

namespace msabench {

// Rounding, flush-to-zero and trap bits of the calling thread; the sticky exception flags are not part of it.
class floating_point_mode {
 public:
  floating_point_mode();  // of now
  // Empty if the mode is as it was; else what changed, and the mode is put back.
  std::string restore() const;

 private:
  struct bits {
    std::uint64_t control = 0;
    int rounding = 0;
    bool flushes_subnormals = false;
    bool operator==(const bits&) const = default;
  };
  static bits read();
  bits before_;
};

class signal_state {
 public:
  signal_state();
  // One clause for each change; everything is put back.
  std::vector<std::string> restore() const;

 private:
  static constexpr int count = 65;  // signals 1 .. 64
  struct sigaction actions_[count] = {};
  sigset_t mask_;
};

class process_state {
 public:
  // Appends a violation of `entry` for each change, and undoes it.
  void restore(std::string_view entry, std::vector<violation>& found) const;
  // The same as clauses: "floating-point mode (subnormals flushed to zero)".
  std::vector<std::string> restore() const;

 private:
  floating_point_mode mode_;
  signal_state signals_;
};

}  // namespace msabench

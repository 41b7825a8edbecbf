// SPDX-License-Identifier: Apache-2.0
// Limits of the worker's own address space. On a CPU a case may take what it needs to map plus 2 GiB and the stacks of
// its threads; a launch under rule R3 may take nothing that a
// heap would have to grow for.
#pragma once

#include <cstdint>

#include "host/plugin_session.h"

namespace msabench {

class address_space : public memory_limiter {
 public:
  // `active` false: no limit is ever set (sanitizers and CUDA reserve terabytes of address space).
  address_space(bool active, int threads);

  // From what the process has now: room for one more case.
  void start();
  void unlimited();
  void allow_more(std::uint64_t bytes) override;
  void freeze() override;
  void thaw() override;

  bool active() const { return active_; }

 private:
  void set(std::uint64_t bytes);

  bool active_;
  std::uint64_t allowance_, most_, limit_ = 0;
};

}  // namespace msabench

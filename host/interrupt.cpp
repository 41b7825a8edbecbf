// SPDX-License-Identifier: Apache-2.0
#include "host/interrupt.h"

#include <csignal>

namespace msabench {
namespace {

volatile std::sig_atomic_t interrupt_seen = 0;

void remember(int) { interrupt_seen = 1; }

}  // namespace

void install_interrupt_handler() {
  struct sigaction action = {};
  action.sa_handler = remember;
  sigemptyset(&action.sa_mask);
  // No SA_RESTART: a blocked poll returns at once.
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() noexcept { return interrupt_seen != 0; }

void clear_interrupt() noexcept { interrupt_seen = 0; }

}  // namespace msabench

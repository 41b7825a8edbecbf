// SPDX-License-Identifier: Apache-2.0
// Ctrl-C. Executors look at interrupted() while they wait; a worker has a process group of its own, so the terminal's
// signal does not reach it.
#pragma once

namespace msabench {

// SIGINT and SIGTERM set a flag instead of ending the process; the second one ends it as usual (the kernel then ends
// the worker too).
void install_interrupt_handler();
bool interrupted() noexcept;
// Forgets an interrupt; install_interrupt_handler() arms anew.
void clear_interrupt() noexcept;

}  // namespace msabench

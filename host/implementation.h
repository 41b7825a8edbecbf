// SPDX-License-Identifier: Apache-2.0
// Where this program's own parts are.
#pragma once

#include <string>

namespace msabench {

// Absolute path of the worker, which lies beside the running program. suite_error if it is not there.
std::string worker_executable();

// Cores that this process may run on.
int available_cores();

}  // namespace msabench

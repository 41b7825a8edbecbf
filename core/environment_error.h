// SPDX-License-Identifier: Apache-2.0
// The third way in which the suite gives up, beside those of core/error.h: the machine can't do what was asked.
#pragma once

#include <stdexcept>

#include "core/error.h"

namespace msabench {

// Exit code 4. The same form of line as usage_error.
class environment_error : public std::runtime_error {
 public:
  explicit environment_error(const diagnostic& d) : std::runtime_error(d.line()) {}
};

}  // namespace msabench

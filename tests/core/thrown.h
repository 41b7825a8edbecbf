// SPDX-License-Identifier: Apache-2.0
// The one line of the usage_error that a call throws; "nothing thrown" otherwise.
#pragma once

#include <string>

#include "core/error.h"

namespace msabench {

template <class Call>
std::string thrown_line(Call call) {
  try {
    call();
  } catch (const usage_error& e) {
    return e.what();
  }
  return "nothing thrown";
}

}  // namespace msabench

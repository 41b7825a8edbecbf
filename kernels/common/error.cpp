// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/error.h"

#include <cstdarg>
#include <cstdio>

namespace msabench::kernels {
namespace {

thread_local char text[512] = "";

}  // namespace

msabench_status fail(msabench_status status, const char* format, ...) {
  va_list values;
  va_start(values, format);
  std::vsnprintf(text, sizeof text, format, values);
  va_end(values);
  return status;
}

void clear_error() { text[0] = '\0'; }

const char* error_text() { return text; }

}  // namespace msabench::kernels

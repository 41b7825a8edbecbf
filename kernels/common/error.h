// SPDX-License-Identifier: Apache-2.0
// The text behind last_error: one per thread, valid until the thread's next call.
#pragma once

#include <msabench/plugin.h>

namespace msabench::kernels {

/// Keeps the text for this thread and returns `status`. Texts read `FIELD VALUE: what is wrong; remedy`. A fixed
/// buffer, since run does not allocate; integers and strings only, since other conversions follow the locale.
[[gnu::format(printf, 2, 3)]] msabench_status fail(msabench_status status, const char* format, ...);

/// Every entry point starts with this.
void clear_error();

/// "" if the thread's last call succeeded.
const char* error_text();

}  // namespace msabench::kernels

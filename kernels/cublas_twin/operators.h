// SPDX-License-Identifier: Apache-2.0
// The operators on the device. Each function enqueues its kernels and products on context.stream and returns. Lengths,
// tables and ids are read by the kernels alone, so a captured graph follows them.
#pragma once

#include "kernels/common/calls.h"
#include "kernels/common/implementation.h"

namespace msabench::cublas_twin {

using namespace msabench::kernels;

void score(const index_call& call, const run_context& context);
void attend(const attend_call& call, const run_context& context);
void dense(const attend_call& call, const run_context& context);

}  // namespace msabench::cublas_twin

// SPDX-License-Identifier: Apache-2.0
// `attend` of many tokens, block by block: a block is read once for all tokens that selected it.
#pragma once

#include <msabench/plugin.h>

#include <cstdint>

#include "kernels/common/implementation.h"

namespace msabench::cuda {

/// Whether a problem's tokens share blocks often enough for that.
bool gathers_tokens(const msabench_problem& problem);

double gathered_attention_bytes(const msabench_problem& problem);

void gathered_attention(const kernels::attend_call& call, const kernels::run_context& context);

}  // namespace msabench::cuda

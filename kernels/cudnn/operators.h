// SPDX-License-Identifier: Apache-2.0
// The operators over a cuDNN graph, which is the state of the plan. Each enqueues on context.stream what makes cuDNN's
// form of the lengths, the graph, and what puts its results in their places.
#pragma once

#include <string>

#include "kernels/common/calls.h"
#include "kernels/common/implementation.h"

namespace msabench::cudnn {

using namespace msabench::kernels;

void dense(const attend_call& call, const run_context& context);
void dense_backward(const backward_call& call, const run_context& context);
void vit_attend(const attend_call& call, const run_context& context);

/// Workspace beside that of the graph.
double form_bytes(const msabench_problem& problem);

/// What went wrong when this thread's last run executed its graph; "" if nothing.
std::string& graph_error();

}  // namespace msabench::cudnn

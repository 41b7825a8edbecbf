// SPDX-License-Identifier: Apache-2.0
// The operators on Hopper. As in kernels/cuda/operators.h each enqueues and returns; a problem that its kernel does not
// take goes to the portable one of the same name.
#pragma once

#include "kernels/cuda/operators.h"

namespace msabench::cuda_sm90 {

using namespace msabench::kernels;

}  // namespace msabench::cuda_sm90

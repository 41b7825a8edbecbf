// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/implementation.h"

namespace msabench::cuda_sm90 {

/// Kernels for Hopper: wgmma and the bulk copy engine. Whatever has no kernel here is that of plugin `cuda`.
const kernels::implementation& hopper_kernels();

}  // namespace msabench::cuda_sm90

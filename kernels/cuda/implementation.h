// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/implementation.h"

namespace msabench::cuda {

/// Kernels for any NVIDIA GPU from sm_80 on: mma.sync and cp.async, written to be read.
extern const kernels::implementation portable_kernels;

}  // namespace msabench::cuda

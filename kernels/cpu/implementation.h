// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/implementation.h"

namespace msabench::cpu {

/// Vectors and tiles, on the best instruction set that the machine has.
extern const kernels::implementation fast_kernels;

}  // namespace msabench::cpu

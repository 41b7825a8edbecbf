// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/implementation.h"

namespace msabench::cublas_twin {

/// What somebody gets who composes the operators of cuBLAS's products.
extern const kernels::implementation twin_kernels;

}  // namespace msabench::cublas_twin

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/implementation.h"

namespace msabench::cudnn {

/// NVIDIA cuDNN's scaled dot-product attention: the dense baseline.
extern const kernels::implementation cudnn_kernels;

}  // namespace msabench::cudnn

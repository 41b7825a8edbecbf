// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda_sm90/implementation.h"

#include "kernels/cuda/implementation.h"
#include "kernels/cuda_sm90/operators.h"

namespace msabench::cuda_sm90 {

const kernels::implementation& hopper_kernels() {
  static const kernels::implementation hopper = [] {
    kernels::implementation all = cuda::portable_kernels;
    all.name = "cuda_sm90";
    all.description = "wgmma and bulk copies on Hopper, and the kernels of cuda for what has none here";
    return all;
  }();
  return hopper;
}

}  // namespace msabench::cuda_sm90

// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda_sm90/implementation.h"

#include "kernels/cuda/implementation.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda_sm90/operators.h"
#include "kernels/cuda_sm90/tensor_map.h"

namespace msabench::cuda_sm90 {
namespace {

const char* enqueue_error() {
  const char* const text = cuda::launch_error();
  const char* const map_text = map_error();
  return map_text != nullptr ? map_text : text;
}

}  // namespace

const kernels::implementation& hopper_kernels() {
  static const kernels::implementation hopper = [] {
    kernels::implementation all = cuda::portable_kernels;
    all.name = "cuda_sm90";
    all.description = "wgmma and bulk copies on Hopper, and the kernels of cuda for what has none here";
    all.enqueue_error = enqueue_error;
    return all;
  }();
  return hopper;
}

}  // namespace msabench::cuda_sm90

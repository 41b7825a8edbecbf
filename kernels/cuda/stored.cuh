// SPDX-License-Identifier: Apache-2.0
// Stored values as C++ types, for kernels without matrix products: these read and write fp32 as well.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/common/types.h"

namespace msabench::cuda {

/// use(T{}) with the C++ type of `type`, one of bf16, fp16 and fp32.
template <class Use>
void with_stored(msabench_dtype type, const Use& use) {
  if (kernels::same_type(type, kernels::bf16_type))
    use(__nv_bfloat16{});
  else if (kernels::same_type(type, kernels::fp16_type))
    use(__half{});
  else
    use(float{});
}

}  // namespace msabench::cuda

// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda_sm90/tensor_map.h"

#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>

namespace msabench::cuda_sm90 {
namespace {

constexpr std::size_t most_dimensions = 5;

thread_local char error_text[160];
thread_local bool has_error = false;

/// cuTensorMapEncodeTiled of the driver, which the plugin is not linked with; nullptr: it has none.
PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  static const auto found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result{};
    constexpr unsigned since = 12000;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, since, cudaEnableDefault, &result) !=
            cudaSuccess ||
        result != cudaDriverEntryPointSuccess)
      function = nullptr;
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
  }();
  return found;
}

/// An axis of one element may have any stride, which the engine does not accept and does not need.
std::int64_t usable_stride(const map_dimension& dimension) {
  constexpr std::int64_t granule = 16, end = std::int64_t{1} << 40;
  const std::int64_t bytes = dimension.stride_bytes;
  const bool accepted = bytes >= 0 && bytes < end && bytes % granule == 0;
  return dimension.size > 1 || accepted ? bytes : granule;
}

}  // namespace

bool make_tensor_map(CUtensorMap& map, msabench_dtype type, const void* base,
                     std::initializer_list<map_dimension> dimensions) {
  const auto encode = encoder();
  if (encode == nullptr) {
    std::snprintf(error_text, sizeof error_text, "the driver has no cuTensorMapEncodeTiled; install one of CUDA 12");
    has_error = true;
    return false;
  }
  cuuint64_t sizes[most_dimensions], strides[most_dimensions];
  cuuint32_t boxes[most_dimensions], steps[most_dimensions];
  std::size_t rank = 0;
  for (const map_dimension& dimension : dimensions) {
    sizes[rank] = static_cast<cuuint64_t>(std::max<std::int64_t>(dimension.size, 1));
    strides[rank] = static_cast<cuuint64_t>(usable_stride(dimension));
    boxes[rank] = static_cast<cuuint32_t>(dimension.box);
    steps[rank++] = 1;
  }
  const CUtensorMapDataType stored = type.bits == 8   ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                     : type.code == 4 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                      : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  // The strides given are those of the dimensions behind the innermost.
  const CUresult result = encode(&map, stored, static_cast<cuuint32_t>(rank), const_cast<void*>(base), sizes,
                                 strides + 1, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return true;
  std::snprintf(error_text, sizeof error_text, "cuTensorMapEncodeTiled: driver error %d", static_cast<int>(result));
  has_error = true;
  return false;
}

const char* map_error() {
  if (!has_error) return nullptr;
  has_error = false;
  return error_text;
}

}  // namespace msabench::cuda_sm90

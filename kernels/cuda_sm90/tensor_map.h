// SPDX-License-Identifier: Apache-2.0
// Tensors as the copy engine sees them. Made on the host in `run`, passed to kernels by value as __grid_constant__.
#pragma once

#include <cuda.h>
#include <msabench/plugin.h>

#include <cstdint>
#include <initializer_list>

namespace msabench::cuda_sm90 {

/// One dimension of a tensor, and how much of it a copy brings.
struct map_dimension {
  std::int64_t size;  ///< elements; what lies behind reads as zeros
  std::int64_t
      stride_bytes;  ///< a multiple of 16, or of one element anything; of the innermost, which is packed, unused
  std::int32_t box;  ///< elements of a copy, 256 at most
};

/// The map of a tensor of 8 or 16 bits, dimensions innermost first, boxes written with the swizzle of 128 bytes (see
/// shared_layout.h), so the innermost box is 128 bytes. False: nothing may be launched, and map_error says why.
bool make_tensor_map(CUtensorMap& map, msabench_dtype type, const void* base,
                     std::initializer_list<map_dimension> dimensions);

/// Why this thread's last map failed, which it clears; nullptr: none failed.
const char* map_error();

}  // namespace msabench::cuda_sm90

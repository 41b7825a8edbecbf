// SPDX-License-Identifier: Apache-2.0
// Copies of queries and keys into matrices that lie as cuBLAS multiplies them. Types don't matter: all have 16 bits.
#pragma once

#include <cstdint>

#include "kernels/common/calls.h"
#include "kernels/cublas_twin/launch.cuh"
#include "kernels/cublas_twin/passes.h"

namespace msabench::cublas_twin {

/// A row of `width` values and zeros up to `padded`, by one warp; `from` nullptr: zeros alone. Rows that have whole
/// vectors of 16 bytes are aligned to them.
__device__ inline void copy_row(const void* from, void* to, std::int64_t width, std::int64_t padded) {
  const int lane = threadIdx.x % warp;
  constexpr int vector = 8;
  if (width % vector == 0) {
    for (std::int64_t i = lane; i < width / vector; i += warp)
      static_cast<uint4*>(to)[i] = from == nullptr ? uint4{} : static_cast<const uint4*>(from)[i];
    return;
  }
  for (std::int64_t i = lane; i < padded; i += warp)
    static_cast<std::uint16_t*>(to)[i] =
        from == nullptr || i >= width ? std::uint16_t{0} : static_cast<const std::uint16_t*>(from)[i];
}

/// Queries of all lines of a pass: [T][heads * group][width] in `from`.
struct query_source {
  const char* data;
  std::int64_t row_stride, head_stride;
};

template <class Units>
__global__ void __launch_bounds__(item_warps* warp) gather_queries(Units units, query_source from, passes p, void* to) {
  const std::int64_t lines = p.lines(), all = p.units() * lines;
  for (std::int64_t i = first_item(); i < all; i += item_step()) {
    const std::int64_t unit = i / lines, line = i % lines, row = units.row(unit, line / p.group);
    const std::int64_t head = units.head(unit) * p.group + line % p.group;
    const char* const query = from.data + (row * from.row_stride + head * from.head_stride) * 2;
    copy_row(row < 0 ? nullptr : query, static_cast<std::uint16_t*>(to) + i * p.padded_width, p.width, p.padded_width);
  }
}

/// Keys of a pass, or values. What lies past a sequence may be anything, and zero times that need not be zero.
template <class Units>
__global__ void __launch_bounds__(item_warps* warp) gather_keys(Units units, kernels::cache from, passes p, void* to) {
  const std::int64_t all = p.units() * p.padded_keys;
  for (std::int64_t i = first_item(); i < all; i += item_step()) {
    const std::int64_t unit = i / p.padded_keys, token = units.token(unit, i % p.padded_keys);
    const bool there = token < units.limit(unit);
    copy_row(there ? from.token(units.sequence(unit), units.head(unit), token) : nullptr,
             static_cast<std::uint16_t*>(to) + i * p.padded_width, p.width, p.padded_width);
  }
}

}  // namespace msabench::cublas_twin

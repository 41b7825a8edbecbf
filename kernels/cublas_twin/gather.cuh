// SPDX-License-Identifier: Apache-2.0
// Copies of queries and keys into matrices that lie as cuBLAS multiplies them. Types don't matter: all have 16 bits.
#pragma once

#include <cstdint>

#include "kernels/common/calls.h"
#include "kernels/cublas_twin/launch.cuh"
#include "kernels/cublas_twin/passes.h"

namespace msabench::cublas_twin {

/// A team of as many threads as a row has vectors of 16 bytes copies it; a power of two, a warp at most.
struct row_team {
  int threads, rank, first_row, rows;  ///< rows: of all teams of the grid

  __device__ explicit row_team(std::int64_t width) {
    const std::int64_t vectors = width % 8 == 0 ? width / 8 : warp;
    threads = 1;
    while (threads < vectors && threads < warp) threads *= 2;
    const int teams = static_cast<int>(blockDim.x) / threads;
    rank = static_cast<int>(threadIdx.x) % threads;
    first_row = static_cast<int>(blockIdx.x) * teams + static_cast<int>(threadIdx.x) / threads;
    rows = static_cast<int>(gridDim.x) * teams;
  }

  /// `width` values and zeros up to `padded`; `from` nullptr: zeros alone. Rows of whole vectors are aligned to them.
  __device__ void copy(const void* from, void* to, std::int64_t width, std::int64_t padded) const {
    if (width % 8 == 0) {
      for (std::int64_t i = rank; i < width / 8; i += threads)
        static_cast<uint4*>(to)[i] = from == nullptr ? uint4{} : static_cast<const uint4*>(from)[i];
      return;
    }
    for (std::int64_t i = rank; i < padded; i += threads)
      static_cast<std::uint16_t*>(to)[i] =
          from == nullptr || i >= width ? std::uint16_t{0} : static_cast<const std::uint16_t*>(from)[i];
  }
};

constexpr int gather_threads = 256;

/// Queries of all lines of a pass: [T][heads * group][width] in `from`.
struct query_source {
  const char* data;
  std::int64_t row_stride, head_stride;
};

/// Blocks of a column of the grid have the lines of one unit.
template <class Units>
__global__ void __launch_bounds__(gather_threads) gather_queries(Units units, query_source from, passes p, void* to) {
  const auto unit = units.at(blockIdx.y);
  const row_team team(p.width);
  for (std::int64_t line = team.first_row; line < p.lines(); line += team.rows) {
    const std::int64_t row = unit.row(line / p.group), head = unit.head * p.group + line % p.group;
    const char* const query = from.data + (row * from.row_stride + head * from.head_stride) * 2;
    team.copy(row < 0 ? nullptr : query,
              static_cast<std::uint16_t*>(to) + (blockIdx.y * p.lines() + line) * p.padded_width, p.width,
              p.padded_width);
  }
}

/// Keys of a unit, and values where there are some (`to_values` not nullptr). What lies past a sequence may be anything,
/// and zero times that need not be zero.
template <class Units>
__global__ void __launch_bounds__(gather_threads)
    gather_keys(Units units, kernels::cache keys, kernels::cache values, passes p, void* to_keys, void* to_values) {
  const auto unit = units.at(blockIdx.y);
  const row_team team(p.width);
  for (std::int64_t key = team.first_row; key < p.padded_keys; key += team.rows) {
    const std::int64_t token = unit.token(key), at = (blockIdx.y * p.padded_keys + key) * p.padded_width;
    const bool there = token < unit.limit();
    team.copy(there ? keys.token(unit.sequence, unit.head, token) : nullptr, static_cast<std::uint16_t*>(to_keys) + at,
              p.width, p.padded_width);
    if (to_values != nullptr)
      team.copy(there ? values.token(unit.sequence, unit.head, token) : nullptr,
                static_cast<std::uint16_t*>(to_values) + at, p.width, p.padded_width);
  }
}

}  // namespace msabench::cublas_twin

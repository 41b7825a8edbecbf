// SPDX-License-Identifier: Apache-2.0
// Tiles of 16-bit values in shared memory and the products of a warp with them.
//
// A tile has rows of `columns` values in chunks of 16 bytes. Chunk c of row r lies at place c ^ (r % 8) of its row, so that
// the eight rows that ldmatrix reads at a time lie in different banks.
#pragma once

#include <cstdint>

#include "kernels/cuda/mma.cuh"

namespace msabench::cuda {

template <class T, int columns>
struct shared_tile {
  static constexpr int chunk = 8;  ///< values of 16 bytes
  static constexpr int chunks = columns / chunk;
  static constexpr int row_bytes = columns * 2;
  static_assert(chunks % 8 == 0, "the places of a row's chunks");

  std::uint32_t base;  ///< address in shared memory

  __device__ explicit shared_tile(std::uint32_t address) : base(address) {}

  __device__ std::uint32_t at(int row, int c) const { return base + row * row_bytes + ((c ^ (row & 7)) << 4); }

  /// Chunk c of a row of `width` values at `from`; zeros where there is none.
  __device__ void copy(int row, int c, const void* from, int width, bool there) const {
    const bool inside = there && c * chunk < width;
    copy_async(at(row, c), inside ? static_cast<const char*>(from) + c * 16 : from, inside);
  }

  /// A [16][16]: rows from `row` on, columns from 16 * step on.
  __device__ void left(std::uint32_t (&a)[4], int row, int step) const {
    const int lane = threadIdx.x % 32;
    load_matrices(a, at(row + lane % 16, step * 2 + lane / 16));
  }

  /// A [16][16]: its rows are the columns from 16 * step on, its columns the rows from `row` on.
  __device__ void left_transposed(std::uint32_t (&a)[4], int row, int step) const {
    const int lane = threadIdx.x % 32;
    load_matrices_transposed(a, at(row + lane / 16 * 8 + lane % 8, step * 2 + lane / 8 % 2));
  }

  /// B [16][16] = rows^T: its columns are the rows from `row` on. b[0], b[1] are of the first eight columns.
  __device__ void right_transposed(std::uint32_t (&b)[4], int row, int step) const {
    const int lane = threadIdx.x % 32;
    load_matrices(b, at(row + lane / 16 * 8 + lane % 8, step * 2 + lane / 8 % 2));
  }

  /// B [16][16]: rows from `row` on, columns from 16 * step on. b[0], b[1] are of the first eight columns.
  __device__ void right(std::uint32_t (&b)[4], int row, int step) const {
    const int lane = threadIdx.x % 32;
    load_matrices_transposed(b, at(row + lane % 16, step * 2 + lane / 16));
  }
};

/// c [16][8 * tiles] = 16 rows of `left` times rows of `right`, transposed.
template <class T, int columns, int tiles>
__device__ void multiply_rows(float (&c)[tiles][4], const shared_tile<T, columns>& left, int left_row,
                              const shared_tile<T, columns>& right, int right_row) {
  static_assert(tiles % 2 == 0);
#pragma unroll
  for (int tile = 0; tile < tiles; ++tile)
#pragma unroll
    for (float& x : c[tile]) x = 0;
#pragma unroll
  for (int step = 0; step < columns / 16; ++step) {
    std::uint32_t a[4];
    left.left(a, left_row, step);
#pragma unroll
    for (int tile = 0; tile < tiles; tile += 2) {
      std::uint32_t b[4];
      right.right_transposed(b, right_row + tile * 8, step);
      mma<T>(c[tile], a, b[0], b[1]);
      mma<T>(c[tile + 1], a, b[2], b[3]);
    }
  }
}

/// c [16][columns] += weights [16][8 * tiles], rounded to the stored type, times 8 * tiles rows of `right`.
template <class T, int columns, int tiles>
__device__ void add_products(float (&c)[columns / 8][4], const float (&weights)[tiles][4],
                             const shared_tile<T, columns>& right, int right_row) {
  static_assert(tiles % 2 == 0);
#pragma unroll
  for (int tile = 0; tile < tiles; tile += 2) {
    // What a lane holds of two neighbouring tiles of a product is what it has to hold of a left operand.
    const std::uint32_t a[4] = {storage<T>::pack(weights[tile][0], weights[tile][1]),
                                storage<T>::pack(weights[tile][2], weights[tile][3]),
                                storage<T>::pack(weights[tile + 1][0], weights[tile + 1][1]),
                                storage<T>::pack(weights[tile + 1][2], weights[tile + 1][3])};
#pragma unroll
    for (int step = 0; step < columns / 16; ++step) {
      std::uint32_t b[4];
      right.right(b, right_row + tile * 8, step);
      mma<T>(c[2 * step], a, b[0], b[1]);
      mma<T>(c[2 * step + 1], a, b[2], b[3]);
    }
  }
}

}  // namespace msabench::cuda

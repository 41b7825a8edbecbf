// SPDX-License-Identifier: Apache-2.0
// Tiles of 16-bit values in shared memory and the products of a warp with them.
//
// A tile has rows of `columns` values in chunks of 16 bytes. Chunk c of row r lies at place c ^ (r % 8) of its row, so that
// the eight rows that ldmatrix reads at a time lie in different banks. Steps along a row are of two chunks, so a step
// changes a lane's address by an exclusive or; tiles start at multiples of 256 bytes for that.
#pragma once

#include <cstdint>

#include "kernels/cuda/mma.cuh"

namespace msabench::cuda {

/// What a lane reads in rows of a tile, from its row 0 and step 0 on. Compilers would keep the address of every step of
/// every tile in a register over a whole loop, and have none left for sums; so each product starts from one that they
/// know nothing of.
struct lane_address {
  std::uint32_t first;

  __device__ explicit lane_address(std::uint32_t address) : first(address) { asm volatile("" : "+r"(first)); }
};

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

  /// For rows that are rows of the matrix, and for rows that are its columns.
  __device__ lane_address lane_rows() const {
    const int lane = threadIdx.x % 32;
    return lane_address(at(lane % 16, lane / 16));
  }
  __device__ lane_address lane_columns() const {
    const int lane = threadIdx.x % 32;
    return lane_address(at(lane / 16 * 8 + lane % 8, lane / 8 % 2));
  }

  /// Rows from `row` on, a multiple of 8, and columns from 16 * step on.
  __device__ static std::uint32_t move(const lane_address& lane, int row, int step) {
    return (lane.first ^ (step * 32)) + row * row_bytes;
  }

  /// A [16][16]: rows from `row` on, columns from 16 * step on.
  __device__ static void left(std::uint32_t (&a)[4], const lane_address& lane_rows, int row, int step) {
    load_matrices(a, move(lane_rows, row, step));
  }

  /// A [16][16]: its rows are the columns from 16 * step on, its columns the rows from `row` on.
  __device__ static void left_transposed(std::uint32_t (&a)[4], const lane_address& lane_columns, int row, int step) {
    load_matrices_transposed(a, move(lane_columns, row, step));
  }

  /// B [16][16] = rows^T: its columns are the rows from `row` on. b[0], b[1] are of the first eight columns.
  __device__ static void right_transposed(std::uint32_t (&b)[4], const lane_address& lane_columns, int row, int step) {
    load_matrices(b, move(lane_columns, row, step));
  }

  /// B [16][16]: rows from `row` on, columns from 16 * step on. b[0], b[1] are of the first eight columns.
  __device__ static void right(std::uint32_t (&b)[4], const lane_address& lane_rows, int row, int step) {
    load_matrices_transposed(b, move(lane_rows, row, step));
  }
};

/// c [16][8 * tiles] = 16 rows of `left` times rows of `right`, transposed.
template <class T, int columns, int tiles>
__device__ void multiply_rows(float (&c)[tiles][4], const shared_tile<T, columns>& left, int left_row,
                              const shared_tile<T, columns>& right, int right_row) {
  static_assert(tiles % 2 == 0);
  using tile_type = shared_tile<T, columns>;
  const lane_address left_lane = left.lane_rows(), right_lane = right.lane_columns();
#pragma unroll
  for (int tile = 0; tile < tiles; ++tile)
#pragma unroll
    for (float& x : c[tile]) x = 0;
#pragma unroll
  for (int step = 0; step < columns / 16; ++step) {
    std::uint32_t a[4];
    tile_type::left(a, left_lane, left_row, step);
#pragma unroll
    for (int tile = 0; tile < tiles; tile += 2) {
      std::uint32_t b[4];
      tile_type::right_transposed(b, right_lane, right_row + tile * 8, step);
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
  const lane_address lane = right.lane_rows();
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
      right.right(b, lane, right_row + tile * 8, step);
      mma<T>(c[2 * step], a, b[0], b[1]);
      mma<T>(c[2 * step + 1], a, b[2], b[3]);
    }
  }
}

}  // namespace msabench::cuda

// SPDX-License-Identifier: Apache-2.0
// What both scoring kernels read and how they multiply it. They have to give the same bits, since which one computes a
// row depends on the rest of the call: so a product is put together here alone.
//
// Thread 4g + t holds 16 bytes of a key (column g of the product) at a time: piece 4j + t, eight elements. Two of
// mma.sync's k16 steps use them up, the first elements 0..3 of pieces 4j .. 4j+3, the second elements 4..7. That is not
// the order in memory, but queries are taken in the same one, and a sum does not care. In return keys go from memory or
// shared memory into registers by 16-byte loads, without ldmatrix.
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/top_blocks.cuh"

namespace msabench::cuda {

constexpr int tile_keys = 128;  ///< fetched together; a tile starts at a multiple of it and holds whole blocks
constexpr int unit_keys = 32;   ///< multiplied together
constexpr int half_unit = 16;   ///< the smallest block
constexpr int piece_elements = 8;

/// Groups of 4 pieces in a row of di elements, zeros behind its end: 2 to 64 elements, 4 to 128.
constexpr int most_width = 128;
constexpr int groups_for(int width) { return width <= 64 ? 2 : 4; }

/// Where keys of one sequence lie.
struct index_keys {
  const kernels::cache& keys;
  std::int64_t sequence;
  bool at_one_stride;  ///< within a tile: no page ends there

  __device__ index_keys(const kernels::cache& all, std::int64_t of_sequence)
      : keys(all), sequence(of_sequence), at_one_stride(all.block_table == nullptr || all.page_size % tile_keys == 0) {}

  __device__ const char* tile(std::int64_t first_key) const { return keys.token(sequence, 0, first_key); }
  __device__ const char* key(const char* tile, std::int64_t first_key, int i) const {
    return at_one_stride ? tile + i * keys.token_stride * 2 : keys.token(sequence, 0, first_key + i);
  }
};

/// 16 bytes of a query; zeros behind its end. A negative scale makes the least product the best, so it turns the signs.
__device__ inline uint4 query_piece(const kernels::index_call& c, std::int64_t row, std::int64_t head, int piece) {
  if (piece * piece_elements >= c.width) return {};
  const std::int64_t element = row * c.q_row_stride + head * c.q_head_stride + piece * piece_elements;
  uint4 q = __ldg(reinterpret_cast<const uint4*>(c.q + element * 2));
  if (c.scale < 0) {
    constexpr std::uint32_t signs = 0x80008000u;
    q.x ^= signs, q.y ^= signs, q.z ^= signs, q.w ^= signs;
  }
  return q;
}

/// Pieces of rows g and g + 8 as the two operands that they make.
struct query_operands {
  std::uint32_t first[4], second[4];

  query_operands() = default;
  __device__ query_operands(const uint4& low, const uint4& high)
      : first{low.x, high.x, low.y, high.y}, second{low.z, high.z, low.w, high.w} {}
};

/// Products of rows g and g + 8 with 16 keys, of which the columns from `column` on are this thread's: those become
/// -infinity that are not among the `low` or `high` keys that the rows see.
__device__ inline void hide(float (&left)[4], float (&right)[4], int column, int low, int high) {
  for (int i = 0; i < 2; ++i) {
    if (column + i >= low) left[i] = -CUDART_INF_F;
    if (column + i >= high) left[2 + i] = -CUDART_INF_F;
    if (column + 8 + i >= low) right[i] = -CUDART_INF_F;
    if (column + 8 + i >= high) right[2 + i] = -CUDART_INF_F;
  }
}

/// This thread's greatest product of row g (half 0) or g + 8 with 16 keys. NaN is passed over.
__device__ inline float best_of_four(const float (&left)[4], const float (&right)[4], int half) {
  return fmaxf(fmaxf(left[2 * half], left[2 * half + 1]), fmaxf(right[2 * half], right[2 * half + 1]));
}

/// Two rows' maxima over two neighbouring quads of threads' halves: a thread keeps the row of `mine`, its neighbour that
/// of `given`, and both pairs of the quad come to the same. Nothing but NaN is -infinity.
__device__ inline float quad_best(float mine, float given) {
  mine = fmaxf(mine, __shfl_xor_sync(all_lanes, given, 1));
  return fmaxf(fmaxf(mine, __shfl_xor_sync(all_lanes, mine, 2)), -CUDART_INF_F);
}

/// Keys that token `i` of a sequence's tile sees, where the first sees `first_sees`. What lies behind the scores' last
/// column is cut off: lengths above the bound of the problem are the caller's fault, but no reason to write there.
__device__ inline int keys_seen(const kernels::index_call& c, std::int64_t first_sees, std::int64_t i) {
  return static_cast<int>(max(std::int64_t{0}, min(first_sees + i, c.max_blocks * c.rule.block)));
}

}  // namespace msabench::cuda

// SPDX-License-Identifier: Apache-2.0
// What both scoring kernels read and how they multiply it. They have to give the same bits, since which one computes a
// row depends on the rest of the call: so a product is put together here alone.
//
// Thread 4g + t holds 16 bytes of a key (column g of the product) at a time: piece 4j + t, eight elements. Two of
// mma.sync's k16 steps use them up, the first elements 0..3 of pieces 4j .. 4j+3, the second elements 4..7. That is not
// the order in memory, but queries are taken in the same one, and a sum does not care. In return both go into registers
// by 16-byte loads, queries from memory as they are, without ldmatrix.
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/top_blocks.cuh"

namespace msabench::cuda {

constexpr int tile_keys = 128;  ///< fetched together; a tile starts at a multiple of it and holds whole blocks
constexpr int least_block = 16;
constexpr int piece_elements = 8;

/// Groups of 4 pieces in a row of di elements, zeros behind its end: 2 to 64 elements, 4 to 128.
constexpr int most_width = 128;
constexpr int groups_for(int width) { return width <= 64 ? 2 : 4; }

/// Where piece `piece` of row `row` is in shared memory, among `pieces` a row: odd rows have the halves of their 128 bytes
/// changed over, so that a quarter of a warp reads all banks at once.
template <int pieces>
__device__ inline int placed(int row, int piece) {
  return row * pieces + (piece ^ (row & 1) * 4);
}

/// Where keys of one sequence lie.
struct index_keys {
  const kernels::cache& cache;
  std::int64_t sequence, stride;  ///< in bytes, between keys of a page
  bool at_one_stride;             ///< within a tile: no page ends there

  __device__ index_keys(const kernels::cache& all, std::int64_t of_sequence)
      : cache(all),
        sequence(of_sequence),
        stride(all.token_stride * kernels::bytes_of(all.type)),
        at_one_stride(all.block_table == nullptr || all.page_size % tile_keys == 0) {}

  __device__ const char* key(std::int64_t i) const { return cache.token(sequence, 0, i); }
};

/// A warp starts to copy `rows` keys, of one tile, to their places in shared memory; zeros from key `end` on. `first` is
/// the address of the first of them. Nearly all that this costs is the arithmetic between two copies, so there is little.
/// `policy`: of copy_async, or none.
template <int rows, int pieces, class... Policy>
__device__ inline void copy_keys(const index_keys& keys, const char* first, std::int64_t first_key, std::int64_t end,
                                 int width, uint4* to, Policy... policy) {
  constexpr int rows_at_once = 32 / pieces, copies = rows / rows_at_once, copy_bytes = 32 * sizeof(uint4);
  const int lane = threadIdx.x % 32, piece = lane % pieces, row = lane / pieces;
  const bool inside = piece * piece_elements < width;
  const auto left = static_cast<int>(min(end - first_key, std::int64_t{rows}));
  const int mine = inside ? left - row : 0;  // this lane's rows lie below it, one in rows_at_once
  const std::uint32_t place = shared_address(to + placed<pieces>(row, piece));
  if (keys.at_one_stride) {
    const char* from = first + row * keys.stride + piece * 16;
    const std::int64_t step = rows_at_once * keys.stride;
#pragma unroll
    for (int i = 0; i < copies; ++i, from += step)
      copy_async(place + i * copy_bytes, from, i * rows_at_once < mine, policy...);
    return;
  }
  constexpr int held_starts = (rows + 31) / 32;
  unsigned long long starts[held_starts];  // of keys lane, lane + 32, ...
#pragma unroll
  for (int i = 0; i < held_starts; ++i)
    starts[i] =
        reinterpret_cast<unsigned long long>(32 * i + lane < left ? keys.key(first_key + 32 * i + lane) : first);
#pragma unroll
  for (int i = 0; i < copies; ++i) {
    const auto start = __shfl_sync(all_lanes, starts[i * rows_at_once / 32], (i * rows_at_once + row) % 32);
    copy_async(place + i * copy_bytes, reinterpret_cast<const char*>(start) + piece * 16, i * rows_at_once < mine,
               policy...);
  }
}

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

/// What a thread holds of a unit of N x 8 keys: pieces t, t + 4, ... of keys g, g + 8, ...
template <int N, int groups>
struct unit_pieces {
  uint4 held[groups][N];

  __device__ explicit unit_pieces(const uint4* unit) {
#pragma unroll
    for (int j = 0; j < groups; ++j) load(j, unit);
  }

  /// Group j of another unit.
  __device__ void load(int j, const uint4* unit) {
    constexpr int pieces = 4 * groups;
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    // placed() moves piece 4j + t by 4 in odd rows: to j + 1 if j is even, else to j - 1.
    const uint4 *const even = unit + placed<pieces>(g, t), *const odd = unit + placed<pieces>(g, t + 4) - 4;
#pragma unroll
    for (int n = 0; n < N; ++n) held[j][n] = (j % 2 == 0 ? even : odd)[8 * n * pieces + 4 * j];
  }
};

/// What group j adds to products of M tiles of 16 rows and a unit of keys: [M][8 keys][fragment]. Groups come in
/// ascending order.
template <class T, int M, int N, int groups>
__device__ inline void multiply_group(float (&products)[M][N][4], const query_operands (&queries)[M][groups],
                                      const unit_pieces<N, groups>& unit, int j) {
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int m = 0; m < M; ++m) mma<T>(products[m][n], queries[m][j].first, unit.held[j][n].x, unit.held[j][n].y);
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int m = 0; m < M; ++m) mma<T>(products[m][n], queries[m][j].second, unit.held[j][n].z, unit.held[j][n].w);
}

/// Products that a row does not see become -infinity: rows g and g + 8 see `low` and `high` keys, and the thread's columns
/// are `column`, column + 1 and every 8 further on.
template <int N>
__device__ inline void hide(float (&products)[N][4], int column, int low, int high) {
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (column + 8 * n + i >= low) products[n][i] = -CUDART_INF_F;
      if (column + 8 * n + i >= high) products[n][2 + i] = -CUDART_INF_F;
    }
}

/// This thread's greatest product of row g (half 0) or g + 8 with keys 16 * part .. 16 * part + 15. NaN is passed over.
template <int N>
__device__ inline float best_of(const float (&products)[N][4], int part, int half) {
  const float(&left)[4] = products[2 * part], (&right)[4] = products[2 * part + 1];
  return fmaxf(fmaxf(left[2 * half], left[2 * half + 1]), fmaxf(right[2 * half], right[2 * half + 1]));
}

/// Two rows' maxima over a quad, of which a thread wants that of `mine` and its neighbour that of `given`. A maximum of
/// nothing but NaN is -infinity.
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

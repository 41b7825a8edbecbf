// SPDX-License-Identifier: Apache-2.0
// Which rows a thread block computes, which keys they read, and the way of both into shared memory.
#pragma once

#include <cstdint>

#include "kernels/common/calls.h"
#include "kernels/common/implementation.h"
#include "kernels/cuda/attention_rows.cuh"
#include "kernels/cuda/mma.cuh"

namespace msabench::cuda {

using namespace msabench::kernels;

/// Neighbouring tokens of a sequence whose rows a thread block computes: row r is head r % group of token r / group.
struct token_tile {
  std::int64_t sequence, first;  ///< row of the token tensors
  std::int32_t tokens;           ///< 0: nothing to do
  std::int64_t first_limit;      ///< keys that the first token sees; may be negative for padding
  std::int32_t causal;           ///< 1: each token sees one key more than the one before it
  std::int64_t length;           ///< keys of the sequence

  __device__ std::uint32_t limit(std::int32_t token) const {
    const std::int64_t keys = min(first_limit + causal * token, length);
    return token < tokens && keys > 0 ? static_cast<std::uint32_t>(keys) : 0;
  }
};

/// Tiles of `most` tokens that no sequence shares. At the most so many, whatever the lengths are: sequence b begins with
/// tile cu_seqlens_q[b] / most + b, which leaves room for one that is not full in each.
__host__ __device__ inline std::int64_t token_tile_bound(std::int64_t rows, std::int64_t batch, std::int32_t most) {
  return most == 1 ? rows : rows / most + batch;
}

__device__ inline token_tile token_tile_at(const lengths& rows, std::int64_t index, std::int32_t most) {
  token_tile tile{};
  std::int64_t row = index;
  if (most > 1) {
    if (rows.batch == 0) return tile;
    std::int64_t sequence = 0, end = rows.batch;
    while (end - sequence > 1) {
      const std::int64_t middle = (sequence + end) / 2;
      (rows.cu_seqlens_q[middle] / most + middle <= index ? sequence : end) = middle;
    }
    const std::int64_t start = rows.cu_seqlens_q[sequence];
    row = start + (index - (start / most + sequence)) * most;
    if (row >= rows.cu_seqlens_q[sequence + 1]) return tile;
  } else if (row >= rows.tokens()) {
    return tile;
  }
  const row_place place = rows.place(row);
  tile.sequence = place.sequence;
  tile.first = row;
  tile.tokens = static_cast<std::int32_t>(min(std::int64_t{most}, rows.cu_seqlens_q[place.sequence + 1] - row));
  tile.first_limit = place.position + 1;
  tile.causal = rows.kv_lens != nullptr;
  tile.length = place.length;
  return tile;
}

/// The keys that rows read, in a row of their own: those of the blocks of a list, or all.
struct key_list {
  const std::int32_t* blocks;  ///< nullptr: all keys
  std::uint32_t block;         ///< tokens of a block, a multiple of 8
  std::uint32_t count;

  static constexpr std::uint32_t none = ~31u;  ///< beyond every limit, and so are the next few

  /// Position of a key in its sequence. Keys of an octet follow each other there.
  __device__ std::uint32_t position(std::uint32_t key) const {
    if (blocks == nullptr) return key;
    return key < count ? static_cast<std::uint32_t>(blocks[key / block]) * block + key % block : none;
  }

  /// Whether all of `keys` keys are below a limit.
  __device__ bool all_below(std::uint32_t limit, std::uint32_t first, std::uint32_t keys) const {
    const bool in_one_block = blocks == nullptr || first % block + keys <= block;
    return first + keys <= count && in_one_block && position(first) + keys <= limit;
  }
};

/// The distinct ids in 0..own into `blocks`; returns how many. Ascending up to topk 32, so that a row has the same bits on
/// every path; in the order of their first mention beyond. For one warp.
__device__ inline std::uint32_t list_blocks(const std::int32_t* ids, std::int32_t topk, std::int64_t visible,
                                            std::int32_t* blocks) {
  const int lane = threadIdx.x % 32;
  std::uint32_t count = 0;
  for (std::int32_t base = 0; base < topk; base += 32) {
    const std::int32_t id = base + lane < topk ? ids[base + lane] : -1;
    bool is_new = id >= 0 && id < visible;
    for (std::uint32_t i = 0; i < count; ++i) is_new = is_new && blocks[i] != id;
    const unsigned same = __match_any_sync(~0u, id);
    is_new = is_new && __ffs(static_cast<int>(same)) - 1 == lane;
    const unsigned all = __ballot_sync(~0u, is_new);
    if (is_new) blocks[count + __popc(all & ((1u << lane) - 1))] = id;
    count += __popc(all);
    __syncwarp();
  }
  if (topk <= 32) {
    const std::int32_t own = lane < static_cast<int>(count) ? blocks[lane] : 0;
    std::uint32_t rank = 0;
    for (std::uint32_t i = 0; i < count; ++i) rank += blocks[i] < own;
    __syncwarp();
    if (lane < static_cast<int>(count)) blocks[rank] = own;
    __syncwarp();
  }
  return count;
}

/// As cache::token, in 32-bit divisions, which cost a fraction.
__device__ inline const char* key_address(const cache& from, std::int64_t sequence, std::int64_t head,
                                          std::uint32_t position) {
  if (from.block_table == nullptr) return from.token(sequence, head, position);
  const auto page_size = static_cast<std::uint32_t>(from.page_size);
  const std::int64_t page = from.block_table[sequence * from.table_stride + position / page_size];
  const std::int64_t element =
      page * from.page_stride + position % page_size * from.token_stride + head * from.head_stride;
  return from.data + element * 2;
}

/// Enqueues the copy of a tile of keys (or values) of the list, of positions below `limit`; zeros for all others, which
/// may hold anything. Each warp copies its share: a lane finds the address of one key, and all copy it in pieces.
template <class S>
__device__ void copy_tile(const cache& from, std::int64_t sequence, std::int64_t head, std::int32_t d,
                          const key_list& keys, std::uint32_t first, std::uint32_t limit, typename S::value* to) {
  constexpr int pieces = S::octets;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const char* own = nullptr;
  if (lane < S::keys_per_warp) {
    const std::uint32_t position = keys.position(first + warp * S::keys_per_warp + lane);
    if (position < limit) own = key_address(from, sequence, head, position);
  }
#pragma unroll
  for (int i = 0; i < S::keys_per_warp * pieces / 32; ++i) {
    const int key = (i * 32 + lane) / pieces, piece = (i * 32 + lane) % pieces;
    const auto* const address =
        reinterpret_cast<const char*>(__shfl_sync(~0u, reinterpret_cast<unsigned long long>(own), key));
    const bool there = address != nullptr && piece * 8 < d;
    copy_async(shared_address(to + (warp * S::keys_per_warp + key) * S::stride + piece * 8),
               there ? address + piece * 16 : from.data, there);
  }
}

/// Scores of keys that their row does not see become -infinity. `limits`: of rows g and g + 8 of each m tile.
template <class S>
__device__ void mask_tile(const key_list& keys, std::uint32_t first, const std::uint32_t (&limits)[S::m_tiles][2],
                          attention_scores<S>& scores) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int n = 0; n < S::tile_keys / 8; ++n) {
    const std::uint32_t position = keys.position(first + n * 8) + 2 * t;
#pragma unroll
    for (int m = 0; m < S::m_tiles; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (position + i % 2 >= limits[m][i / 2]) scores.values[m][n][i] = -CUDART_INF_F;
  }
}

/// Enqueues the copy of the queries of a tile; zeros for rows past the last.
template <class S>
__device__ void copy_queries(const attend_call& call, const token_tile& tile, std::int64_t kv_head, int rows,
                             typename S::value* to) {
  constexpr int pieces = S::octets;
  for (int i = threadIdx.x; i < rows * pieces; i += S::threads) {
    const int row = i / pieces, piece = i % pieces, token = row / call.group;
    const bool there = token < tile.tokens && piece * 8 < call.d;
    const std::int64_t element = (tile.first + token) * call.q_row_stride +
                                 (kv_head * call.group + row % call.group) * call.q_head_stride + piece * 8;
    copy_async(shared_address(to + row * S::stride + piece * 8), there ? call.q + element * 2 : call.q, there);
  }
}

}  // namespace msabench::cuda

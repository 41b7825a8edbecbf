// SPDX-License-Identifier: Apache-2.0
// What the passes of attend_backward and kl share: lanes of a product, the keys of a row in pieces, stores of gradients.
#pragma once

#include "kernels/common/calls.h"
#include "kernels/cuda/readers.cuh"
#include "kernels/cuda/tiles.cuh"

namespace msabench::cuda {

constexpr int warp = 32;
constexpr int width = 128;  ///< columns of a tile; heads are at most as wide, and zeros fill it up
constexpr float log2e = 1.4426950408889634f;

/// Where a lane's part of a product of mma lies: rows g and g + 8, columns 2t, 2t+1 of each tile of 8 columns.
struct lane_place {
  int g, t;
  __device__ lane_place() : g(threadIdx.x % warp / 4), t(threadIdx.x % 4) {}
};

/// Keys or values of one sequence and head, which lie in rows: batches of training are contiguous.
struct key_rows {
  const char* first;
  std::int64_t row_bytes;

  __device__ key_rows(const cache& from, std::int64_t sequence, std::int32_t head)
      : first(from.token(sequence, head, 0)), row_bytes(from.token_stride * bytes_of(from.type)) {}
  __device__ const char* at(std::int64_t j) const { return first + j * row_bytes; }
};

constexpr int piece_keys = 32;

/// The ids of a row lie in shared memory.
constexpr std::int32_t most_training_topk = 4096;

/// Keys first .. first + count - 1 of a sequence.
struct key_piece {
  std::int64_t first;
  int count;
};

/// The valid blocks of a row's ids, by one warp; returns how many.
__device__ inline int collect_blocks(const std::int32_t* ids, std::int32_t topk, std::int64_t visible,
                                     std::int32_t* to) {
  const int lane = threadIdx.x % warp;
  int count = 0;
  for (int first = 0; first < topk; first += warp) {
    const int slot = first + lane;
    const bool valid = slot < topk && selected_ids::counts(ids, slot, visible);
    const unsigned all = __ballot_sync(~0u, valid);
    if (valid) to[count + __popc(all & ((1u << lane) - 1))] = ids[slot];
    count += __popc(all);
  }
  return count;
}

/// The keys that a token reads, in pieces of at most piece_keys of one block.
struct row_keys {
  const std::int32_t* blocks;  ///< nullptr: the first ones
  std::int32_t block;          ///< Bk
  std::int64_t seen;           ///< keys before this one
  int pieces_of_block, pieces;

  __device__ row_keys(const std::int32_t* chosen, int count, std::int32_t block_size, std::int64_t position)
      : blocks(chosen),
        block(block_size),
        seen(position + 1),
        pieces_of_block((block_size + piece_keys - 1) / piece_keys),
        pieces(count * pieces_of_block) {}

  /// Empty behind the last one.
  __device__ key_piece at(int piece) const {
    if (piece >= pieces) return {0, 0};
    const int turn = piece / pieces_of_block, inside = piece % pieces_of_block * piece_keys;
    const std::int64_t first = std::int64_t{blocks != nullptr ? blocks[turn] : turn} * block + inside;
    const std::int64_t left = seen - first;
    const int most = min(block - inside, piece_keys);
    return {first, static_cast<int>(left < 0 ? 0 : left < most ? left : most)};
  }
};

/// A piece of keys or values on its way into the memory of a warp. Nothing is read at addresses behind its last key.
template <class T>
__device__ void load_piece(const shared_tile<T, width>& to, const key_rows& from, const key_piece& keys, int columns) {
  constexpr int chunks = shared_tile<T, width>::chunks, rows = warp / chunks;  // half a warp for each key
  const int lane = threadIdx.x % warp, chunk = lane % chunks, first = lane / chunks;
  const bool inside = chunk * 8 < columns;
  const char* at = from.at(keys.first + first) + chunk * 16;
  // All at once would take a register pair for each address.
#pragma unroll 4
  for (int row = first; row < piece_keys; row += rows, at += rows * from.row_bytes)
    copy_async(to.at(row, chunk), at, inside && row < keys.count);
  commit_copies();
}

/// A value as two of 16 bits, together finer than tf32: its rounding, and the rounding of what that leaves. The factor keeps
/// small ones, of fp16 too, among the normal numbers.
template <class T>
struct split_value {
  static constexpr float factor = 4096;
  float high, low;

  __device__ explicit split_value(float value)
      : high(storage<T>::widen(storage<T>::of(value * factor))), low(value * factor - high) {}
};

/// Two neighbouring elements of a gradient.
__device__ inline void store_pair(char* line, msabench_dtype type, int column, float x, float y) {
  if (same_type(type, fp32_type))
    *reinterpret_cast<float2*>(line + column * 4) = make_float2(x, y);
  else
    *reinterpret_cast<std::uint32_t*>(line + column * 2) =
        same_type(type, bf16_type) ? storage<__nv_bfloat16>::pack(x, y) : storage<__half>::pack(x, y);
}

}  // namespace msabench::cuda

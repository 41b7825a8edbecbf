// SPDX-License-Identifier: Apache-2.0
// Which tokens read a block of keys: the ids the other way round, for kernels that go by blocks of keys.
#pragma once

#include <msabench/plugin.h>

#include <cstdint>

#include "kernels/common/lengths.h"
#include "kernels/cuda/workspace.cuh"

namespace msabench::cuda {

using namespace msabench::kernels;

/// The blocks of all sequences of a contiguous batch, numbered one after the other. A sequence has a number more than it may
/// have blocks in between, so that no sums over sequences are needed; numbers past its last block are of no keys.
struct block_numbers {
  const std::int32_t *cu_seqlens_kv, *kv_lens;
  std::int64_t batch;
  std::int32_t block;  ///< Bk

  MSABENCH_HOST_DEVICE static std::int64_t bound(std::int64_t keys, std::int64_t batch, std::int32_t block) {
    return keys / block + batch;
  }

  __device__ std::int64_t first(std::int64_t sequence) const { return cu_seqlens_kv[sequence] / block + sequence; }

  struct keys {
    std::int64_t sequence, first;
    std::int32_t count;  ///< 0: nothing is behind this number
  };
  __device__ keys at(std::int64_t number) const {
    std::int64_t low = 0, count = batch;
    while (count > 0) {
      const std::int64_t half = count / 2;
      if (first(low + half) <= number) {
        low += half + 1;
        count -= half + 1;
      } else {
        count = half;
      }
    }
    if (low == 0) return {0, 0, 0};
    const std::int64_t begin = (number - first(low - 1)) * block, left = kv_lens[low - 1] - begin;
    return {low - 1, begin, static_cast<std::int32_t>(left < 0 ? 0 : left < block ? left : block)};
  }
};

/// Ids [T][Hkv][topk] in any form: what is no visible block is passed over, and what comes twice counts once.
struct selected_ids {
  const std::int32_t* data;
  std::int64_t row_stride, head_stride;
  std::int32_t topk;

  __device__ const std::int32_t* row(std::int64_t row, std::int32_t head) const {
    return data + row * row_stride + head * head_stride;
  }

  /// Whether a slot of a row is the first with a block among the `visible` ones.
  __device__ static bool counts(const std::int32_t* row, std::int32_t slot, std::int64_t visible) {
    const std::int32_t id = row[slot];
    if (id < 0 || id >= visible) return false;
    for (std::int32_t before = 0; before < slot; ++before)
      if (row[before] == id) return false;
    return true;
  }
};

/// A part of the readers of a block.
struct reader_piece {
  std::int64_t first;  ///< in block_readers::tokens
  std::int32_t list, count;
  std::int32_t slot;  ///< where its sums go to be added up; -1: it is the only part
};

/// A tile of keys of a block, and tokens that read the block.
struct reading {
  block_numbers::keys keys;  ///< of the tile
  std::int64_t first_key;    ///< of the tile, among the keys of the call
  std::int32_t head, slot;
  const std::int32_t* list;  ///< nullptr: tokens from first_token on
  std::int64_t first_token;
  std::int32_t tokens;

  __device__ std::int64_t token(std::int32_t i) const { return list != nullptr ? list[i] : first_token + i; }
};

/// For each list (KV head, block number) the tokens that read the block, ascending, in memory of the device. Long lists come
/// in pieces, so that no block of threads is left alone with one. Where all keys are read, nothing is kept: the readers of
/// a block are all tokens from the first that sees it on, in one piece.
struct block_readers {
  lengths rows;
  block_numbers numbers;
  selected_ids ids;  ///< data nullptr = all keys are read
  std::int32_t heads;
  std::int64_t blocks;         ///< bound of the numbers of blocks
  std::int64_t first_row;      ///< readers are the tokens from here on,
  std::int64_t row_count;      ///< so many
  std::int64_t chunks;         ///< parts that the tokens are sorted in, one after the other
  std::int64_t chunk_rows;     ///< tokens of a chunk
  std::int64_t piece_rows;     ///< tokens of a piece
  std::int64_t slots_of_head;  ///< bound of the slots of a head's lists

  std::int32_t* counts;  ///< [chunks][lists] tokens of a chunk in a list, then of those before it
  std::int64_t* starts;  ///< [lists + 1] into tokens
  std::int32_t* tokens;  ///< [rows][heads][topk]
  reader_piece* pieces;  ///< [most_pieces]
  std::int32_t* firsts;  ///< [lists + 1] first piece of a list, and all pieces
  std::int32_t* slots;   ///< [lists] first slot of a list in more than one piece; -1: in one
  std::int32_t*
      places;  ///< [rows][heads][topk] where in `tokens` a row is for a slot of its ids; -1: nowhere; nullptr = not
               ///< wanted

  MSABENCH_HOST_DEVICE std::int64_t lists() const { return heads * blocks; }
  MSABENCH_HOST_DEVICE std::int64_t list(std::int32_t head, std::int64_t number) const {
    return head * blocks + number;
  }
  MSABENCH_HOST_DEVICE std::int64_t most_slots() const { return heads * slots_of_head; }
  MSABENCH_HOST_DEVICE std::int64_t most_pieces() const { return lists() + most_slots(); }

  /// Behind the last token that may be a reader.
  __device__ std::int64_t end_row() const {
    const std::int64_t end = first_row + row_count, all = rows.tokens();
    return end < all ? end : all;
  }

  /// Pieces of all lists, and those of one. Where all keys are read, long lists come first.
  __device__ std::int64_t all_pieces() const { return ids.data == nullptr ? lists() : firsts[lists()]; }
  __device__ std::int64_t first_piece(std::int32_t head, std::int64_t number) const {
    return ids.data == nullptr ? number * heads + head : firsts[list(head, number)];
  }
  __device__ std::int64_t pieces_of(std::int32_t head, std::int64_t number) const {
    return ids.data == nullptr ? 1 : firsts[list(head, number) + 1] - firsts[list(head, number)];
  }

  /// Tile `tile` of so many keys of the block of a piece, and the tokens of that piece.
  __device__ reading at(std::int64_t piece, int tile, int tile_keys) const;

  /// Sizes and memory for so many tokens of a problem, in pieces of so many at least. `block`: keys of a block.
  static block_readers cut(workspace_cutter& memory, const msabench_problem& problem, std::int32_t block,
                           std::int64_t row_count, std::int64_t least_piece);
  void bind(const lengths& batch, const std::int32_t* cu_seqlens_kv, std::int32_t block, const selected_ids& selected);

  /// Enqueues the kernels that find them.
  void find(void* stream) const;
};

__device__ inline reading block_readers::at(std::int64_t piece, int tile, int tile_keys) const {
  reading r{};
  std::int64_t number;
  r.slot = -1;
  if (ids.data == nullptr) {
    r.head = static_cast<std::int32_t>(piece % heads);
    number = piece / heads;
  } else {
    const reader_piece own = pieces[piece];
    r.head = static_cast<std::int32_t>(own.list / blocks);
    number = own.list % blocks;
    r.list = tokens + own.first;
    r.tokens = own.count;
    r.slot = own.slot;
  }
  r.keys = numbers.at(number);
  const int left = r.keys.count - tile * tile_keys;
  r.keys.first += tile * tile_keys;
  r.keys.count = left < 0 ? 0 : left < tile_keys ? left : tile_keys;
  if (r.keys.count == 0) return r;
  r.first_key = numbers.cu_seqlens_kv[r.keys.sequence] + r.keys.first;
  if (ids.data != nullptr) return r;
  const std::int64_t begin = rows.cu_seqlens_q[r.keys.sequence], end = rows.cu_seqlens_q[r.keys.sequence + 1];
  const std::int64_t first_position = numbers.kv_lens[r.keys.sequence] - (end - begin);
  const std::int64_t blind = r.keys.first - first_position;  // tokens before the first that sees the tile
  const std::int64_t sees = begin + (blind > 0 ? blind : 0), last = end < end_row() ? end : end_row();
  r.first_token = sees > first_row ? sees : first_row;
  r.tokens = static_cast<std::int32_t>(r.first_token < last ? last - r.first_token : 0);
  return r;
}

}  // namespace msabench::cuda

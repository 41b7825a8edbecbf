// SPDX-License-Identifier: Apache-2.0
// Which tokens read a block of keys: the ids the other way round, for kernels that go by blocks of keys.
#pragma once

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

/// For each list (KV head, block number) the tokens that read the block, ascending, in memory of the device. Long lists come
/// in pieces, so that no block of threads is left alone with one.
struct block_readers {
  lengths rows;
  block_numbers numbers;
  selected_ids ids;
  std::int32_t heads;
  std::int64_t blocks;         ///< bound of the numbers of blocks
  std::int64_t chunks;         ///< parts that the tokens are sorted in, one after the other
  std::int64_t chunk_rows;     ///< tokens of a chunk
  std::int64_t piece_rows;     ///< tokens of a piece
  std::int64_t slots_of_head;  ///< bound of the slots of a head's lists

  std::int32_t* counts;  ///< [chunks][lists] tokens of a chunk in a list, then of those before it
  std::int64_t* starts;  ///< [lists + 1] into tokens
  std::int32_t* tokens;  ///< [rows][heads][topk]
  reader_piece* pieces;  ///< [most_pieces]
  std::int32_t* found;   ///< [1] how many pieces there are
  std::int32_t* slots;   ///< [lists] first slot of a list in more than one piece; -1: in one

  MSABENCH_HOST_DEVICE std::int64_t lists() const { return heads * blocks; }
  MSABENCH_HOST_DEVICE std::int64_t list(std::int32_t head, std::int64_t number) const {
    return head * blocks + number;
  }
  MSABENCH_HOST_DEVICE std::int64_t most_slots() const { return heads * slots_of_head; }
  MSABENCH_HOST_DEVICE std::int64_t most_pieces() const { return lists() + most_slots(); }

  /// Sizes and memory for the bounds of a problem; the tensors are the caller's to add.
  static block_readers cut(workspace_cutter& memory, const msabench_problem& problem);

  /// Enqueues the kernels that find them.
  void find(void* stream) const;
};

}  // namespace msabench::cuda

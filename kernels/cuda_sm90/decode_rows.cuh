// SPDX-License-Identifier: Apache-2.0
// Few query tokens of many keys: the blocks that sequences have, and the place of a row, found by whole warps so that
// as little as possible is read one after the other.
#pragma once

#include <cstdint>

#include "kernels/common/calls.h"
#include "kernels/cuda/sequence_tiles.cuh"
#include "kernels/cuda/top_blocks.cuh"

namespace msabench::cuda_sm90 {

using namespace msabench::kernels;
using cuda::block_share;

/// Keys of a block, the only size that decode takes.
inline constexpr int decode_block = 128;

/// As lengths::place. Every lane gets it; false for a row that no sequence has.
__device__ inline bool place_row(const lengths& rows, std::int64_t row, row_place& place) {
  constexpr int loads = 4;  // on their way at once
  const int lane = threadIdx.x % 32;
  for (std::int64_t base = lane; base - lane < rows.batch; base += 32 * loads) {
    std::int32_t ends[loads], keys[loads];
#pragma unroll
    for (int i = 0; i < loads; ++i) {
      const bool is_sequence = base + 32 * i < rows.batch;
      ends[i] = is_sequence ? rows.cu_seqlens_q[base + 32 * i + 1] : 0;
      keys[i] = is_sequence ? rows.kv_lens[base + 32 * i] : 0;
    }
#pragma unroll
    for (int i = 0; i < loads; ++i) {
      const unsigned behind = __ballot_sync(cuda::all_lanes, ends[i] > row);
      if (behind == 0) continue;
      const int found = __ffs(static_cast<int>(behind)) - 1;
      place.sequence = base - lane + 32 * i + found;
      place.length = __shfl_sync(cuda::all_lanes, keys[i], found);
      place.position = place.length - (__shfl_sync(cuda::all_lanes, ends[i], found) - row);
      return true;
    }
  }
  return false;
}

/// The blocks of all sequences one after the other, as far as their last query tokens see them; at one of the
/// sequences.
struct sequence_blocks {
  const lengths& rows;
  int most_keys;
  int sequence = 0;
  int begin = 0, end = 0;  ///< blocks before this sequence, and with it

  __device__ sequence_blocks(const index_call& c)
      : rows(c.rows), most_keys(static_cast<int>(c.max_blocks * decode_block)) {}

  /// What lies behind the last column of scores is cut off, as keys_seen does. Reads all at once, not one after the
  /// other.
  __device__ int keys(int of) const {
    if (of >= rows.batch) return 0;
    const std::int32_t first = rows.cu_seqlens_q[of], after = rows.cu_seqlens_q[of + 1], length = rows.kv_lens[of];
    return after > first ? max(0, min(length, most_keys)) : 0;
  }
  __device__ int keys() const { return keys(sequence); }
  __device__ int blocks(int of) const { return (keys(of) + decode_block - 1) / decode_block; }

  __device__ void next() {
    ++sequence;
    begin = end;
    end += blocks(sequence);
  }

  /// Of all sequences. By whole warps.
  __device__ int all() const {
    int sum = 0;
    for (int s = threadIdx.x % 32; s < rows.batch; s += 32) sum += blocks(s);
    return __reduce_add_sync(cuda::all_lanes, sum);
  }

  /// To the sequence of a block that there is. By whole warps.
  __device__ void seek(int block) {
    const int lane = threadIdx.x % 32;
    int before = 0;
    for (int base = 0; base < rows.batch; base += 32) {
      const int own = blocks(base + lane);
      int with_own = own;
      for (int distance = 1; distance < 32; distance *= 2) {
        const int left = __shfl_up_sync(cuda::all_lanes, with_own, distance);
        if (lane >= distance) with_own += left;
      }
      const unsigned behind = __ballot_sync(cuda::all_lanes, before + with_own > block);
      if (behind != 0) {
        const int found = __ffs(static_cast<int>(behind)) - 1;
        sequence = base + found;
        end = before + __shfl_sync(cuda::all_lanes, with_own, found);
        begin = end - __shfl_sync(cuda::all_lanes, own, found);
        return;
      }
      before += __shfl_sync(cuda::all_lanes, with_own, 31);
    }
  }
};

}  // namespace msabench::cuda_sm90

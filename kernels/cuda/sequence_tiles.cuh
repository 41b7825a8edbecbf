// SPDX-License-Identifier: Apache-2.0
// The tiles of index keys of all sequences, one after the other, and how they are divided among thread blocks.
#pragma once

#include "kernels/cuda/index_keys.cuh"

namespace msabench::cuda {

/// Of `all` items, those of this thread block: as many as any other has, or one less.
struct block_share {
  int begin, end;

  __device__ explicit block_share(int all) {
    const int shares = static_cast<int>(gridDim.x), number = static_cast<int>(blockIdx.x);
    const int least = all / shares, rest = all % shares;
    begin = least * number + min(number, rest);
    end = begin + least + (number < rest ? 1 : 0);
  }
};

/// Tiles that the last query token of their sequence sees; at one of the sequences. Counted in 32 bits: see `streams`.
struct sequence_tiles {
  const kernels::index_call& call;
  int sequence = 0;
  int begin = 0, end = 0;  ///< tiles before this sequence, and with it

  __device__ explicit sequence_tiles(const kernels::index_call& c) : call(c) {}

  /// Keys that the last query token of a sequence sees. Reads all at once, not one after the other.
  __device__ int keys(int of) const {
    if (of >= call.rows.batch) return 0;
    const std::int32_t first = call.rows.cu_seqlens_q[of], after = call.rows.cu_seqlens_q[of + 1];
    const std::int32_t length = call.rows.kv_lens[of];
    return after > first ? keys_seen(call, length, 0) : 0;
  }
  __device__ int keys() const { return keys(sequence); }
  __device__ int tiles(int of) const { return (keys(of) + tile_keys - 1) / tile_keys; }

  __device__ void next() {
    ++sequence;
    begin = end;
    end += tiles(sequence);
  }

  /// Of all sequences. By whole warps.
  __device__ int all() const {
    int sum = 0;
    for (int s = static_cast<int>(threadIdx.x) % 32; s < call.rows.batch; s += 32) sum += tiles(s);
    return __reduce_add_sync(all_lanes, sum);
  }

  /// To the sequence of a tile that there is. By whole warps.
  __device__ void seek(int tile) {
    const int lane = threadIdx.x % 32;
    int before = 0;
    for (int base = 0; base < call.rows.batch; base += 32) {
      const int own = tiles(base + lane);
      int with_own = own;
      for (int distance = 1; distance < 32; distance *= 2) {
        const int left = __shfl_up_sync(all_lanes, with_own, distance);
        if (lane >= distance) with_own += left;
      }
      const unsigned behind = __ballot_sync(all_lanes, before + with_own > tile);
      if (behind != 0) {
        const int found = __ffs(static_cast<int>(behind)) - 1;
        sequence = base + found;
        end = before + __shfl_sync(all_lanes, with_own, found);
        begin = end - __shfl_sync(all_lanes, own, found);
        return;
      }
      before += __shfl_sync(all_lanes, with_own, 31);
    }
  }
};

}  // namespace msabench::cuda

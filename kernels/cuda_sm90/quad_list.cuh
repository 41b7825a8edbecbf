// SPDX-License-Identifier: Apache-2.0
// The best blocks of a row in the registers of the four threads that hold the row's products: 16 places, best first, four
// in each thread.
#pragma once

#include "kernels/cuda/top_blocks.cuh"

namespace msabench::cuda_sm90 {

using cuda::all_lanes;
using cuda::no_block;
using cuda::rank;

class quad_list {
 public:
  static constexpr int places = 16;

  /// Of `wanted` places, 16 at most. Those before them are taken by what no block ranks above.
  __device__ explicit quad_list(int wanted) {
#pragma unroll
    for (int i = 0; i < each; ++i) held_[i] = each * thread() + i < places - wanted ? ~rank{0} : no_block;
  }

  /// Whether a block with this score has a place, if it comes behind all those that were inserted: of equal scores the lower
  /// id ranks higher. A list that is not full takes every score.
  __device__ bool takes(float score) const { return !(score <= floor_); }

  /// By whole warps, each quad its own block; no_block changes nothing.
  __device__ void insert(rank added) {
    // What comes into this thread's places is the block itself, or what the thread before it loses by it.
    rank before = __shfl_up_sync(all_lanes, held_[each - 1], 1, each);
    if (thread() == 0) before = ~rank{0};
    const rank coming = min(added, before);
    bool above[each];
#pragma unroll
    for (int i = 0; i < each; ++i) above[i] = coming > held_[i];
#pragma unroll
    for (int i = each - 1; i > 0; --i)
      if (above[i]) held_[i] = above[i - 1] ? held_[i - 1] : coming;
    if (above[0]) held_[0] = coming;
    const auto last = static_cast<std::uint32_t>(held_[each - 1] >> 32);
    // Of no block it is NaN, which no score is at most.
    floor_ = cuda::score_of(rank{__shfl_sync(all_lanes, last, each - 1, each)} << 32);
  }

  /// What lane 4g + t of a warp has: places 4t .. 4t + 3 of quad g.
  __device__ rank held(int i) const { return held_[i]; }

  /// Place `place` of the list of quad `quad`. By whole warps; each lane asks for its own place.
  __device__ rank at(int quad, int place) const {
    rank found = no_block;
#pragma unroll
    for (int i = 0; i < each; ++i) {
      const rank there = __shfl_sync(all_lanes, held_[i], quad * each + place / each);
      if (place % each == i) found = there;
    }
    return found;
  }

  static constexpr int each = 4;  ///< places in a thread

 private:
  static __device__ int thread() { return threadIdx.x % each; }

  rank held_[each];
  float floor_ = cuda::score_of(no_block);  // score in the last place
};

}  // namespace msabench::cuda_sm90

// SPDX-License-Identifier: Apache-2.0
// The best blocks of a row: a sorted list in the lanes of a warp, which candidates are offered to 32 at a time.
#pragma once

#include <cuda_runtime.h>
#include <math_constants.h>

#include <cstdint>

#include "kernels/common/calls.h"

namespace msabench::cuda {

/// A list has one place in each lane.
constexpr int most_selected = 32;
constexpr unsigned all_lanes = ~0u;

/// A block's score and id as one number: a greater score ranks higher, of equal ones the lower id. NaN counts as
/// -infinity, -0 as +0. No two blocks of a row rank alike, so the best ones do not depend on the order in which blocks
/// come or on how a row is split.
using rank = unsigned long long;
constexpr rank no_block = 0;  ///< below every block

__device__ inline rank rank_of(float score, std::int64_t id) {
  const std::uint32_t bits = __float_as_uint(isnan(score) ? -CUDART_INF_F : score + 0.0f);
  const std::uint32_t ascending = bits >> 31 ? ~bits : bits | 0x80000000u;
  return rank{ascending} << 32 | ~static_cast<std::uint32_t>(id);
}
__device__ inline std::int32_t id_of(rank r) { return static_cast<std::int32_t>(~static_cast<std::uint32_t>(r)); }
/// The score in a rank of a block.
__device__ inline float score_of(rank r) {
  const auto ascending = static_cast<std::uint32_t>(r >> 32);
  return __uint_as_float(ascending >> 31 ? ascending & 0x7fffffffu : ~ascending);
}

/// How many blocks are taken by rank, where there are more than topk; the others are forced.
__host__ __device__ inline int wanted_blocks(const kernels::selection_rule& rule) {
  return rule.topk - rule.initial - rule.local;
}

/// Blocks of a row that are ranked, and how many of them are taken: none where all are.
struct free_blocks {
  std::int64_t first, end;
  int wanted;

  __device__ free_blocks(const kernels::selection_rule& rule, std::int64_t visible) {
    const bool none = visible <= rule.topk || wanted_blocks(rule) == 0;
    first = none ? 0 : rule.initial;
    end = none ? 0 : visible - rule.local;
    wanted = none ? 0 : wanted_blocks(rule);
  }
};

/// Lane i holds the i-th best rank so far. Every function is called by whole warps.
struct top_list {
  rank mine = no_block;

  /// Candidates of the lanes in `which`.
  __device__ void offer(rank candidate, unsigned which) {
    const int lane = threadIdx.x % 32;
    // About as much work as so many insertions.
    constexpr int sorting = 10;
    if (__popc(which) > sorting) {
      merge(sorted(which >> lane & 1 ? candidate : no_block));
      return;
    }
    for (; which != 0; which &= which - 1) insert(__shfl_sync(all_lanes, candidate, __ffs(which) - 1));
  }

  /// `other` is sorted likewise.
  __device__ void merge(rank other) {
    const int lane = threadIdx.x % 32;
    const rank reversed = __shfl_sync(all_lanes, other, 31 - lane);
    mine = max(mine, reversed);  // the best 32 of both, rising and then falling
    for (int distance = 16; distance > 0; distance /= 2) mine = exchanged(mine, distance, (lane & distance) == 0);
  }

  /// Greatest first, by a bitonic network.
  static __device__ rank sorted(rank value) {
    const int lane = threadIdx.x % 32;
    for (int size = 2; size <= 32; size *= 2) {
      const bool falling = (lane & size) == 0;
      for (int distance = size / 2; distance > 0; distance /= 2)
        value = exchanged(value, distance, ((lane & distance) == 0) == falling);
    }
    return value;
  }

 private:
  __device__ void insert(rank added) {
    const int lane = threadIdx.x % 32;
    const int place = __popc(__ballot_sync(all_lanes, mine > added));
    const rank before = __shfl_up_sync(all_lanes, mine, 1);
    if (lane >= place) mine = lane == place ? added : before;
  }

  static __device__ rank exchanged(rank value, int distance, bool keeps_greater) {
    const rank other = __shfl_xor_sync(all_lanes, value, distance);
    return (value > other) == keeps_greater ? value : other;
  }
};

/// Writes ids [topk] of a row that sees `visible` blocks; lane i has the i-th best of the free ones.
__device__ inline void write_ids(const kernels::selection_rule& rule, std::int64_t visible, rank best,
                                 std::int32_t* ids) {
  const int lane = threadIdx.x % 32;
  if (visible <= rule.topk) {
    for (int i = lane; i < rule.topk; i += 32) ids[i] = i < visible ? i : -1;
    return;
  }
  const int wanted = wanted_blocks(rule);
  const std::int32_t id = id_of(best);
  int place = rule.initial;
  for (int i = 0; i < wanted; ++i) place += __shfl_sync(all_lanes, id, i) < id;
  if (lane < wanted) ids[place] = id;
  if (lane < rule.initial) ids[lane] = lane;
  if (lane < rule.local) ids[rule.topk - rule.local + lane] = static_cast<std::int32_t>(visible - rule.local + lane);
}

}  // namespace msabench::cuda

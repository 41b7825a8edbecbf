// SPDX-License-Identifier: Apache-2.0
// The blocks of one row from its scores, by a thread block, for rows so few that only the time to an answer counts.
//
// A score that at least as many blocks reach as are wanted is found first, by maxima of classes of blocks: as many
// classes as there are places. Few more than those wanted reach it, and these are ranked by comparing each with each.
// Where too many do, warps keep sorted lists instead. A block's score and id are one number (top_blocks.cuh), so what
// is selected does not depend on the way.
#pragma once

#include "kernels/cuda/top_blocks.cuh"

namespace msabench::cuda_sm90 {

using namespace msabench::kernels;

template <int threads>
struct row_selection {
  static constexpr int warps = threads / 32;
  static constexpr int most_candidates = 256;

  cuda::rank candidates[most_candidates];
  cuda::rank lists[warps][32];
  std::uint32_t class_best[warps][32];
  std::int32_t ids[cuda::most_selected];  ///< the result: topk of them, as the contract has them
  int count;

  /// Of a row that sees `visible` blocks. `scores`: `columns` of them. By the whole thread block; what it
  /// reads in `ids` is there at the end.
  __device__ void select(const selection_rule& rule, std::int64_t visible, const float* scores, std::int64_t columns) {
    const int lane = threadIdx.x % 32;
    const cuda::free_blocks free(rule, visible);
    cuda::rank mine = cuda::no_block;
    if (free.wanted > 0) {
      collect(free, scores, columns);
      if (count <= most_candidates)
        rank_candidates(free.wanted);
      else
        keep_lists(free, scores);
      if (lane < free.wanted) mine = lists[0][lane];
    }
    if (threadIdx.x < 32) cuda::write_ids(rule, visible, mine, ids);
    __syncthreads();
  }

 private:
  static constexpr int vectors = 8, step = 4 * threads * vectors;  // scores that a thread block has in registers

  /// What ranks a score, as the upper half of a rank; 0 is below all.
  static __device__ std::uint32_t ascending(float score) {
    return static_cast<std::uint32_t>(cuda::rank_of(score, 0) >> 32);
  }

  /// The blocks that reach a score that wanted ones reach, in any order.
  __device__ void collect(const cuda::free_blocks& free, const float* scores, std::int64_t columns) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) count = 0;
    const bool in_vectors = reinterpret_cast<std::uintptr_t>(scores) % sizeof(float4) == 0;
    std::uint32_t floor = 1;  // any score
    for (std::int64_t base = 0; base < free.end; base += step) {
      std::uint32_t values[vectors][4], best = 0;
#pragma unroll
      for (int i = 0; i < vectors; ++i) {
        const std::int64_t id = base + 4 * (i * threads + threadIdx.x);
        float parts[4] = {};
        if (in_vectors && id + 4 <= columns && id < free.end) {
          const float4 four = __ldcg(reinterpret_cast<const float4*>(scores + id));
          parts[0] = four.x, parts[1] = four.y, parts[2] = four.z, parts[3] = four.w;
        } else {
#pragma unroll
          for (int e = 0; e < 4; ++e)
            if (id + e < free.end) parts[e] = __ldcg(scores + id + e);
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          values[i][e] = id + e >= free.first && id + e < free.end ? ascending(parts[e]) : 0;
          best = max(best, values[i][e]);
        }
      }
      // Neighbouring blocks, whose scores are alike, are of different classes: those of the 16 or 32 lanes.
      std::uint32_t of_class = best;
      if (free.wanted <= 16) of_class = max(of_class, __shfl_xor_sync(cuda::all_lanes, of_class, 16));
      __syncthreads();  // those of the step before are read
      class_best[warp][lane] = of_class;
      __syncthreads();
#pragma unroll
      for (int other = 0; other < warps; ++other) of_class = max(of_class, class_best[other][lane]);
      floor = max(floor, __reduce_min_sync(cuda::all_lanes, of_class));
      if (best < floor) continue;
#pragma unroll
      for (int i = 0; i < vectors; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (values[i][e] < floor) continue;
          const std::int64_t id = base + 4 * (i * threads + threadIdx.x) + e;
          const int place = atomicAdd(&count, 1);
          if (place < most_candidates)
            candidates[place] = cuda::rank{values[i][e]} << 32 | ~static_cast<std::uint32_t>(id);
        }
    }
    __syncthreads();
  }

  /// The wanted best of the candidates to lists[0]: four threads count those that are better than one.
  __device__ void rank_candidates(int wanted) {
    const int part = threadIdx.x % 4;
    for (int first = 0; first < count; first += threads / 4) {
      const int own = first + threadIdx.x / 4;
      const cuda::rank mine = own < count ? candidates[own] : cuda::no_block;
      int better = 0;
      for (int other = part; other < count; other += 4) better += candidates[other] > mine;
      better += __shfl_xor_sync(cuda::all_lanes, better, 1);
      better += __shfl_xor_sync(cuda::all_lanes, better, 2);
      if (part == 0 && own < count && better < wanted) lists[0][better] = mine;
    }
    __syncthreads();
  }

  /// The same from the scores, however many are alike.
  __device__ void keep_lists(const cuda::free_blocks& free, const float* scores) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    cuda::top_list best;
    for (std::int64_t base = free.first + warp * 32; base < free.end; base += threads) {
      const std::int64_t id = base + lane;
      const cuda::rank candidate = id < free.end ? cuda::rank_of(__ldcg(scores + id), id) : cuda::no_block;
      const cuda::rank floor = __shfl_sync(cuda::all_lanes, best.mine, free.wanted - 1);
      const unsigned better = __ballot_sync(cuda::all_lanes, candidate > floor);
      if (better != 0) best.offer(candidate, better);
    }
    lists[warp][lane] = best.mine;
    __syncthreads();
    if (warp == 0) {
      for (int other = 1; other < warps; ++other) best.merge(lists[other][lane]);
      lists[0][lane] = best.mine;
    }
    __syncthreads();
  }
};

}  // namespace msabench::cuda_sm90

// SPDX-License-Identifier: Apache-2.0
// The blocks of one row from its scores, by a thread block, for rows so few that only the time to an answer counts.
//
// A score that at least as many blocks reach as are wanted is found first, by maxima of classes of blocks: as many
// classes as there are places. Few more than those wanted reach it, and these are ranked by comparing each with each.
// Where too many do, warps keep sorted lists instead. A block's score and id are one number (top_blocks.cuh), so what
// is selected does not depend on the way.
#pragma once

#include "kernels/cuda/top_blocks.cuh"

namespace msabench::cuda {

using namespace msabench::kernels;

template <int threads>
struct row_selection {
  static constexpr int warps = threads / 32;
  static constexpr int most_candidates = 256;

  rank candidates[most_candidates];
  rank lists[warps][32];
  float class_best[warps][32];
  std::int32_t ids[most_selected];  ///< the result: topk of them, as the contract has them
  int count;

  /// Of a row that sees `visible` blocks. `scores`: `columns` of them may be read. By the whole thread block; what it
  /// reads in `ids` is there at the end.
  __device__ void select(const selection_rule& rule, std::int64_t visible, const float* scores, std::int64_t columns) {
    const int lane = threadIdx.x % 32;
    const free_blocks free(rule, visible);
    rank mine = no_block;
    if (free.wanted > 0) {
      collect(free, scores, columns);
      if (count <= most_candidates)
        rank_candidates(free.wanted);
      else
        keep_lists(free, scores);
      if (lane < free.wanted) mine = lists[0][lane];
    }
    if (threadIdx.x < 32) write_ids(rule, visible, mine, ids);
    __syncthreads();
  }

 private:
  static constexpr int vectors = 8, step = 4 * threads * vectors;  // scores that a thread block has in registers

  /// The blocks that reach a score that wanted ones reach, in any order. NaN, which ranks as -infinity, passes for any.
  __device__ void collect(const free_blocks& free, const float* scores, std::int64_t columns) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) count = 0;
    const bool in_vectors = columns % 4 == 0 && reinterpret_cast<std::uintptr_t>(scores) % sizeof(float4) == 0;
    const int end = static_cast<int>(free.end), first = static_cast<int>(free.first);
    const auto all = static_cast<unsigned>(end - first);
    float floor = -CUDART_INF_F;
    for (int base = 0; base < end; base += step) {
      const int first_id = base + 4 * static_cast<int>(threadIdx.x);
      // All are on their way before the first is looked at.
      float read[vectors][4];
      if (in_vectors) {
#pragma unroll
        for (int i = 0; i < vectors; ++i) {
          const int id = first_id + 4 * i * threads;
          const float4 four = id < end ? __ldcg(reinterpret_cast<const float4*>(scores + id)) : float4{};
          read[i][0] = four.x, read[i][1] = four.y, read[i][2] = four.z, read[i][3] = four.w;
        }
      } else {
#pragma unroll
        for (int i = 0; i < vectors * 4; ++i) {
          const int id = first_id + 4 * (i / 4) * threads + i % 4;
          read[i / 4][i % 4] = id < end ? __ldcg(scores + id) : 0;
        }
      }
      float best = -CUDART_INF_F;
#pragma unroll
      for (int i = 0; i < vectors; ++i) {
        if (base + 4 * i * threads >= end) break;
#pragma unroll
        for (int e = 0; e < 4; ++e)
          best = fmaxf(best, is_free(first_id + 4 * i * threads + e, first, all) ? read[i][e] : -CUDART_INF_F);
      }
      // Neighbouring blocks, whose scores are alike, are of different classes: those of the 16 or 32 lanes.
      float of_class = best;
      if (free.wanted <= 16) of_class = fmaxf(of_class, __shfl_xor_sync(all_lanes, of_class, 16));
      if (base > 0) __syncthreads();  // those of the step before are read
      class_best[warp][lane] = of_class;
      __syncthreads();
#pragma unroll
      for (int other = 0; other < warps; ++other) of_class = fmaxf(of_class, class_best[other][lane]);
      const auto ascending = static_cast<std::uint32_t>(rank_of(of_class, 0) >> 32);
      floor = fmaxf(floor, score_of(rank{__reduce_min_sync(all_lanes, ascending)} << 32));
      std::uint32_t found = 0;  // a bit for each
#pragma unroll
      for (int i = 0; i < vectors; ++i) {
        if (base + 4 * i * threads >= end) break;
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (is_free(first_id + 4 * i * threads + e, first, all) && !(read[i][e] < floor)) found |= 1u << (4 * i + e);
      }
      if (found == 0) continue;
      int place = atomicAdd(&count, __popc(found));
#pragma unroll
      for (int i = 0; i < vectors * 4; ++i) {
        if ((found >> i & 1) == 0) continue;
        const int id = first_id + 4 * (i / 4) * threads + i % 4;
        if (place < most_candidates) candidates[place] = rank_of(read[i / 4][i % 4], id);
        ++place;
      }
    }
    __syncthreads();
  }

  static __device__ bool is_free(int id, int first, unsigned all) { return static_cast<unsigned>(id - first) < all; }

  /// The wanted best of the candidates to lists[0]: four threads count those that are better than one.
  __device__ void rank_candidates(int wanted) {
    const int part = threadIdx.x % 4;
    constexpr int at_once = 4;
    for (int first = 0; first < count; first += threads / 4) {
      const int own = first + threadIdx.x / 4;
      const rank mine = own < count ? candidates[own] : no_block;
      int better = 0;
      for (int other = part; other < count; other += 4 * at_once) {
        rank others[at_once];
#pragma unroll
        for (int i = 0; i < at_once; ++i) others[i] = other + 4 * i < count ? candidates[other + 4 * i] : no_block;
#pragma unroll
        for (int i = 0; i < at_once; ++i) better += others[i] > mine;
      }
      better += __shfl_xor_sync(all_lanes, better, 1);
      better += __shfl_xor_sync(all_lanes, better, 2);
      if (part == 0 && own < count && better < wanted) lists[0][better] = mine;
    }
    __syncthreads();
  }

  /// The same from the scores, however many are alike.
  __device__ void keep_lists(const free_blocks& free, const float* scores) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    top_list best;
    for (std::int64_t base = free.first + warp * 32; base < free.end; base += threads) {
      const std::int64_t id = base + lane;
      const rank candidate = id < free.end ? rank_of(__ldcg(scores + id), id) : no_block;
      const rank floor = __shfl_sync(all_lanes, best.mine, free.wanted - 1);
      const unsigned better = __ballot_sync(all_lanes, candidate > floor);
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

}  // namespace msabench::cuda

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

/// A block, and what is to be known of its place before its address is.
struct selected_block {
  std::int32_t id, origin;
};

/// The functions take look(id), the origin of a block. It is asked as soon as a block is one of few that may be selected,
/// as that takes as long as to find out which of them are.
template <int threads>
struct row_selection {
  static constexpr int warps = threads / 32;
  static constexpr int most_candidates = 256;

  cuda::rank candidates[most_candidates];
  cuda::rank lists[warps][32];
  float class_best[warps][32];
  selected_block
      chosen[cuda::most_selected];  ///< the result: as many as topk, or visible, first those of the best scores
  int count;

  /// Those that are selected whatever the scores are, of a row that sees `visible` blocks. Behind all others.
  template <class Look>
  __device__ void choose_forced(const selection_rule& rule, std::int64_t visible, const Look& look) {
    const int wanted = cuda::free_blocks(rule, visible).wanted, i = static_cast<int>(threadIdx.x);
    const bool are_all = visible <= rule.topk;
    if (i >= (are_all ? static_cast<int>(visible) : rule.topk - wanted)) return;
    const int id = are_all || i < rule.initial ? i : static_cast<int>(visible) - rule.local + i - rule.initial;
    chosen[wanted + i] = {id, look(id)};
  }

  /// The others. `scores`: `columns` of them may be read. By the whole thread block, which then has the result.
  template <class Look>
  __device__ void choose(const selection_rule& rule, std::int64_t visible, const float* scores, std::int64_t columns,
                         const Look& look) {
    const cuda::free_blocks free(rule, visible);
    if (free.wanted > 0) {
      // Instructions that are jumped over have to be fetched too.
      if (free.end <= 4 * threads)
        collect<1>(free, scores, columns);
      else
        collect<8>(free, scores, columns);
      if (count <= most_candidates)
        rank_candidates(free.wanted, look);
      else
        keep_lists(free, scores, look);
    }
    __syncthreads();
  }

  /// topk ids as the contract has them, by one warp after choose.
  __device__ void write_ids(const selection_rule& rule, std::int64_t visible, std::int32_t* ids) const {
    const int lane = threadIdx.x % 32;
    const cuda::free_blocks free(rule, visible);
    cuda::write_ids(rule, visible, lane < free.wanted ? lists[0][lane] : cuda::no_block, ids);
  }

 private:
  /// The blocks that reach a score that wanted ones reach, in any order. NaN, which ranks as -infinity, passes for any.
  /// `vectors`: of four scores, that a thread has in registers.
  template <int vectors>
  __device__ void collect(const cuda::free_blocks& free, const float* scores, std::int64_t columns) {
    constexpr int step = 4 * threads * vectors;
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
      if (free.wanted <= 16) of_class = fmaxf(of_class, __shfl_xor_sync(cuda::all_lanes, of_class, 16));
      if (base > 0) __syncthreads();  // those of the step before are read
      class_best[warp][lane] = of_class;
      __syncthreads();
#pragma unroll
      for (int other = 0; other < warps; ++other) of_class = fmaxf(of_class, class_best[other][lane]);
      const auto ascending = static_cast<std::uint32_t>(cuda::rank_of(of_class, 0) >> 32);
      floor = fmaxf(floor, cuda::score_of(cuda::rank{__reduce_min_sync(cuda::all_lanes, ascending)} << 32));
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
      for (int i = 0; i < vectors; ++i) {
        if ((found >> 4 * i & 15) == 0) continue;
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if ((found >> (4 * i + e) & 1) == 0) continue;
          if (place < most_candidates) candidates[place] = cuda::rank_of(read[i][e], first_id + 4 * i * threads + e);
          ++place;
        }
      }
    }
    __syncthreads();
  }

  static __device__ bool is_free(int id, int first, unsigned all) { return static_cast<unsigned>(id - first) < all; }

  /// The wanted best of the candidates to lists[0]: four threads count those that are better than one.
  template <class Look>
  __device__ void rank_candidates(int wanted, const Look& look) {
    const int part = threadIdx.x % 4;
    constexpr int at_once = 4;
    for (int first = 0; first < count; first += threads / 4) {
      const int own = first + threadIdx.x / 4;
      const cuda::rank mine = own < count ? candidates[own] : cuda::no_block;
      const std::int32_t origin = part == 0 && own < count ? look(cuda::id_of(mine)) : 0;
      int better = 0;
      for (int other = part; other < count; other += 4 * at_once) {
        cuda::rank others[at_once];
#pragma unroll
        for (int i = 0; i < at_once; ++i)
          others[i] = other + 4 * i < count ? candidates[other + 4 * i] : cuda::no_block;
#pragma unroll
        for (int i = 0; i < at_once; ++i) better += others[i] > mine;
      }
      better += __shfl_xor_sync(cuda::all_lanes, better, 1);
      better += __shfl_xor_sync(cuda::all_lanes, better, 2);
      if (part == 0 && own < count && better < wanted) {
        lists[0][better] = mine;
        chosen[better] = {cuda::id_of(mine), origin};
      }
    }
  }

  /// The same from the scores, however many are alike.
  template <class Look>
  __device__ void keep_lists(const cuda::free_blocks& free, const float* scores, const Look& look) {
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
      if (lane < free.wanted) chosen[lane] = {cuda::id_of(best.mine), look(cuda::id_of(best.mine))};
    }
  }
};

}  // namespace msabench::cuda_sm90

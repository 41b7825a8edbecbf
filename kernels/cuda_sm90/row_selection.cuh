// SPDX-License-Identifier: Apache-2.0
// The blocks of one row from its scores, by a thread block, for rows so few that only the time to an answer counts.
//
// A score that at least as many blocks reach as are wanted is found first, by maxima of classes of blocks: as many
// classes as there are places. Few more than those wanted reach it, and these are ranked by comparing each with each.
// Where too many do, warps keep sorted lists instead. A block's score and id are one number (top_blocks.cuh), so what
// is selected does not depend on the way.
//
// Every instruction runs once or twice, so most of them have to be fetched first: loops are left as they are, and
// scores lie in shared memory for them.
#pragma once

#include "kernels/cuda/attention_keys.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/top_blocks.cuh"

namespace msabench::cuda_sm90 {

using namespace msabench::kernels;

template <int threads>
struct row_selection {
  static constexpr int warps = threads / 32;
  static constexpr int most_candidates = threads;
  static constexpr int step = 8192;  ///< scores that are in shared memory at a time

  cuda::rank candidates[most_candidates];
  cuda::rank lists[warps][32];  ///< lists[0]: those taken by rank, best first
  float class_best[warps][32];
  std::int32_t given[cuda::most_selected];  ///< taken whatever their scores are
  int given_count, wanted, found;

  /// Of a row that sees `visible` blocks. `scores`: `columns` of them may be read; `room`: for `step` of them, at a
  /// multiple of 16 bytes. By the whole thread block, as all of these; followed by take.
  __device__ void rank(const selection_rule& rule, std::int64_t visible, const float* scores, std::int64_t columns,
                       float* room) {
    const cuda::free_blocks free(rule, visible);
    const int thread = static_cast<int>(threadIdx.x), count = static_cast<int>(min(visible, std::int64_t{rule.topk}));
    if (thread == 0) given_count = count - free.wanted, wanted = free.wanted, found = 0;
    if (thread < count - free.wanted) {
      const bool is_last = free.wanted > 0 && thread >= rule.initial;
      given[thread] = is_last ? static_cast<int>(visible) - rule.local + thread - rule.initial : thread;
    }
    if (free.wanted > 0) {
      collect(free, scores, columns, room);
      if (found > most_candidates) keep_lists(free, scores);
    }
    __syncthreads();
  }

  /// Or of a row whose ids are given.
  __device__ void list(const std::int32_t* ids, int topk, std::int64_t visible) {
    if (threadIdx.x < 32) {
      const int listed = static_cast<int>(cuda::list_blocks(ids, topk, visible, given));
      if (threadIdx.x == 0) given_count = listed, wanted = found = 0;
    }
    __syncthreads();
  }

  /// Calls keep(place, id, look_up(id)) for each of the row's blocks by some thread, places counting from 0 in no
  /// particular order, and returns how many there are. What look_up reads is on its way while blocks are ranked.
  template <class LookUp, class Keep>
  __device__ int take(const LookUp& look_up, const Keep& keep) {
    constexpr int at_once = threads / 4;
    static_assert(cuda::most_selected <= at_once);
    const int part = threadIdx.x % 4;
    int first = 0;
#pragma unroll 1
    do {
      // Four threads count the candidates that are better than theirs; one of them may have a given block as well.
      const int own = first + static_cast<int>(threadIdx.x) / 4;
      const cuda::rank mine = own < found ? candidates[own] : cuda::no_block;
      const bool is_given = part == 1 && own < given_count, is_candidate = part == 0 && own < found;
      const int id = is_given ? given[own] : cuda::id_of(mine);
      const auto where = is_given || is_candidate ? look_up(id) : decltype(look_up(id)){};
      int better = 0;
#pragma unroll 1
      for (int other = part; other < found; other += 16)
#pragma unroll
        for (int i = 0; i < 16; i += 4) better += candidates[other + i] > mine;
      better += __shfl_xor_sync(cuda::all_lanes, better, 1);
      better += __shfl_xor_sync(cuda::all_lanes, better, 2);
      if (is_given) keep(wanted + own, id, where);
      if (is_candidate && better < wanted) {
        lists[0][better] = mine;
        keep(better, id, where);
      }
      first += at_once;
    } while (first < found);
    __syncthreads();
    return given_count + wanted;
  }

  /// After take: ids [topk] of the row as the contract has them. By one warp.
  __device__ void write(const selection_rule& rule, std::int64_t visible, std::int32_t* ids) const {
    const int lane = threadIdx.x % 32;
    cuda::write_ids(rule, visible, lane < wanted ? lists[0][lane] : cuda::no_block, ids);
  }

 private:
  /// The blocks that reach a score that wanted ones reach, in any order. NaN, which ranks as -infinity, passes for any.
  __device__ void collect(const cuda::free_blocks& free, const float* scores, std::int64_t columns, float* room) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    candidates[threadIdx.x] = cuda::no_block;
    const bool in_vectors = columns % 4 == 0 && reinterpret_cast<std::uintptr_t>(scores) % sizeof(float4) == 0;
    const int end = static_cast<int>(free.end), first = static_cast<int>(free.first);
    const auto all = static_cast<unsigned>(end - first);
    const auto is_free = [=](int id) { return static_cast<unsigned>(id - first) < all; };
    const int own = 4 * static_cast<int>(threadIdx.x);
    float floor = -CUDART_INF_F;
#pragma unroll 1
    for (int base = 0; base < end; base += step) {
      // A thread reads what it has brought here itself.
      const int own_end = min(step, end - base);
      if (in_vectors) {
#pragma unroll 1
        for (int i = own; i < own_end; i += 4 * threads)
          cuda::copy_async(cuda::shared_address(room + i), scores + base + i, true);
        cuda::commit_copies();
        cuda::wait_copies<0>();
      } else {
#pragma unroll 1
        for (int i = own; i < own_end; i += 4 * threads)
#pragma unroll
          for (int e = 0; e < 4; ++e) room[i + e] = base + i + e < end ? __ldcg(scores + base + i + e) : 0;
      }
      float best = -CUDART_INF_F;
#pragma unroll 1
      for (int i = own; i < own_end; i += 4 * threads) {
        const float4 four = *reinterpret_cast<const float4*>(room + i);
        const float read[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int e = 0; e < 4; ++e) best = fmaxf(best, is_free(base + i + e) ? read[e] : -CUDART_INF_F);
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
#pragma unroll 1
      for (int i = own; i < own_end; i += 4 * threads) {
        const float4 four = *reinterpret_cast<const float4*>(room + i);
        if (four.x < floor && four.y < floor && four.z < floor && four.w < floor) continue;
#pragma unroll 1
        for (int e = 0; e < 4; ++e) {
          const float score = room[i + e];
          if (!is_free(base + i + e) || score < floor) continue;
          const int place = atomicAdd(&found, 1);
          if (place < most_candidates) candidates[place] = cuda::rank_of(score, base + i + e);
        }
      }
    }
    __syncthreads();
  }

  /// The wanted best become the candidates, from the scores, however many are alike.
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
#pragma unroll 1
      for (int other = 1; other < warps; ++other) best.merge(lists[other][lane]);
      candidates[lane] = best.mine;
      if (lane == 0) found = free.wanted;
    }
  }
};

}  // namespace msabench::cuda_sm90

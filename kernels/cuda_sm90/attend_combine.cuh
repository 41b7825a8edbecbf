// SPDX-License-Identifier: Apache-2.0
// Adding up what a token has of its blocks, in ascending order. One warp has the copy engine bring results to a ring in
// shared memory, four warps add them up, each in 32 columns. What a token has after a pass is one more result, with which
// its next pass begins.
#pragma once

#include <math_constants.h>

#include <cstdint>

#include "kernels/cuda_sm90/attend_passes.cuh"
#include "kernels/cuda_sm90/attend_tiles.cuh"
#include "kernels/cuda_sm90/bulk_copies.cuh"

namespace msabench::cuda_sm90 {

inline constexpr int combining_warps = 4;

/// Which token a result in the ring is of.
struct result_header {
  std::uint32_t item, row, pass;
  std::uint32_t flags;
};
/// Of a token in this pass; of the tokens of a unit; the token has later passes; there are no more results.
inline constexpr std::uint32_t first_of_token = 1, last_of_token = 2, last_of_unit = 4, token_goes_on = 8, no_more = 16;

template <int stages>
struct result_ring {
  static constexpr int count = stages;
  alignas(128) pair_result results[stages];
  result_header headers[stages];
  barrier ready[stages], free[stages];

  __device__ void make_barriers() {
    for (int i = 0; i < stages; ++i) {
      make_barrier(ready + i, 1);
      make_barrier(free + i, combining_warps);
    }
  }
};

/// A unit of tokens and what of a pass is theirs. Entry n is of token n / topk; a lane has entries `lane` and 32 + lane.
struct combined_unit {
  std::uint32_t number = 0;  ///< of the pass
  std::int64_t first_item = 0;
  std::uint32_t pairs[2];
  bool there = false;

  combined_unit() = default;
  __device__ combined_unit(const attend_chunk& chunk, std::uint32_t ticket) : pairs{no_pair, no_pair} {
    const std::uint32_t units = chunk.units_of_pass(), unit = ticket % units;
    number = ticket / units;
    there = number < static_cast<std::uint32_t>(chunk.pass_count());
    if (!there) return;
    const std::int64_t stream = number / static_cast<std::uint32_t>(chunk.ranges);
    const std::int64_t segment = stream % chunk.segments, head = stream / chunk.segments;
    const std::int64_t segment_tokens = chunk.segment_tiles * tile_tokens;
    const std::int64_t first = segment * segment_tokens + std::int64_t{unit} * chunk.unit_tokens;
    const std::int64_t end = min((segment + 1) * segment_tokens, chunk.tokens_of_head());
    const int entries =
        static_cast<int>(max(min(end - first, std::int64_t{chunk.unit_tokens}), std::int64_t{0})) * chunk.topk;
    first_item = head * chunk.tokens_of_head() + first;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = i * 32 + static_cast<int>(threadIdx.x % 32);
      if (at < entries) pairs[i] = chunk.blocks[first_item * chunk.topk + at].number;
    }
  }
};

/// Waits until the results of a pass are there, and what tokens have of the range before, or what the stream before had
/// has been read.
__device__ inline void wait_for_pass(const attend_chunk& chunk, std::uint32_t number, const pass_extent& pass) {
  wait_for_count(chunk.works_done + number, pass.works);
  if (chunk.ranges == 1) return;
  const auto ranges = static_cast<std::uint32_t>(chunk.ranges);
  std::uint32_t before = number;
  for (std::uint32_t i = 0; i < ranges && before > 0; ++i) {
    if (chunk.passes[--before].works == 0) continue;
    wait_for_count(chunk.units_done + before, chunk.told_of_pass());
    return;
  }
}

/// By one warp: brings what tokens have of passes, unit by unit.
template <int stages>
__device__ void bring_results(const attend_chunk& chunk, result_ring<stages>& ring) {
  const int lane = threadIdx.x % 32;
  const std::uint64_t policy = read_once();
  const auto take = [&] {
    const std::uint32_t ticket = lane == 0 ? atomicAdd(chunk.tickets + 1, 1u) : 0;
    return combined_unit(chunk, __shfl_sync(~0u, ticket, 0));
  };
  const auto bring = [&](const result_header& header, const pair_result* from, ring_place<stages>& to) {
    wait_for(ring.free + to.stage, to.parity ^ 1);
    if (lane == 0) {
      ring.headers[to.stage] = header;
      arrive_expecting(ring.ready + to.stage, from == nullptr ? 0 : sizeof(pair_result));
      if (from != nullptr)
        copy_bytes(ring.results + to.stage, from, sizeof(pair_result), ring.ready + to.stage, policy);
    }
    __syncwarp();
    to.next();
  };
  ring_place<stages> to;
  std::uint32_t waited = ~0u;
  combined_unit unit = take();
  while (unit.there) {
    const combined_unit next = take();  // comes while this one is brought
    const pass_extent pass = chunk.passes[unit.number];
    if (pass.works > 0) {
      if (unit.number != waited) {
        wait_for_pass(chunk, unit.number, pass);
        fence_for_async_everywhere();
        waited = unit.number;
      }
      std::uint64_t mine = 0, earlier = 0, later = 0;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const std::uint32_t pair = unit.pairs[i];
        const bool there = pair != no_pair;
        mine |= std::uint64_t{__ballot_sync(~0u, there && pair >= pass.first_pair && pair < pass.end_pair)} << i * 32;
        earlier |= std::uint64_t{__ballot_sync(~0u, there && pair < pass.first_pair)} << i * 32;
        later |= std::uint64_t{__ballot_sync(~0u, there && pair >= pass.end_pair)} << i * 32;
      }
      if (mine == 0 && lane == 0) tell(chunk.units_done + unit.number, combining_warps);
      __syncwarp();
      while (mine != 0) {
        // The next token with a result, and its results.
        const int token = (__ffsll(static_cast<long long>(mine)) - 1) / chunk.topk, begin = token * chunk.topk;
        const std::uint64_t span = ((std::uint64_t{1} << chunk.topk) - 1) << begin;
        std::uint64_t own = mine & span;
        mine &= ~span;
        const std::int64_t item = unit.first_item + token;
        const bool has_earlier = (earlier & span) != 0;
        result_header header{static_cast<std::uint32_t>(item), chunk.tokens[item].row, unit.number, first_of_token};
        if ((later & span) != 0) header.flags |= token_goes_on;
        if (has_earlier) {
          bring(header, chunk.states + item % chunk.tokens_of_head(), to);
          header.flags &= ~first_of_token;
        }
        while (own != 0) {
          const int at = __ffsll(static_cast<long long>(own)) - 1;
          own &= own - 1;
          const std::uint32_t pair = __shfl_sync(~0u, at < 32 ? unit.pairs[0] : unit.pairs[1], at % 32);
          if (own == 0) header.flags |= mine == 0 ? last_of_token | last_of_unit : last_of_token;
          bring(header, chunk.results + pair % static_cast<std::uint32_t>(chunk.room), to);
          header.flags &= ~first_of_token;
        }
      }
    }
    unit = next;
  }
  bring({0, 0, 0, no_more}, nullptr, to);
}

/// Rows g and g + 8 of a token in columns 32 w to 32 w + 31 of warp w: pairs of columns 8 n + 2 t, of lane 4 g + t.
template <class T, int stages>
__device__ void combine_results(const attend_call& call, const attend_chunk& chunk, result_ring<stages>& ring) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, quarter = threadIdx.x / 32 % 4;
  float out[2][8], most[2], sum[2];
  for (ring_place<stages> from;; from.next()) {
    wait_for(ring.ready + from.stage, from.parity);
    const result_header header = ring.headers[from.stage];
    if (header.flags & no_more) return;
    if (header.flags & first_of_token)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        most[half] = -CUDART_INF_F, sum[half] = 0;
#pragma unroll
        for (float& x : out[half]) x = 0;
      }
    const pair_result& result = ring.results[from.stage];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2 stats = result.stats[half * 8 + g];
      const uint4 four = result.out[half * 4 + quarter][lane];
      const float before = most[half];
      most[half] = fmaxf(before, stats.x);
      const float reference = cuda::reference_score(most[half]);
      const float old = cuda::exp2_approximately(before - reference);
      const float weight = stats.y * cuda::exp2_approximately(stats.x - reference);
      sum[half] = __fmaf_rn(sum[half], old, weight);
      const std::uint32_t words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 values =
            cuda::storage<T>::widen(reinterpret_cast<const typename cuda::storage<T>::pair&>(words[i]));
        out[half][i * 2] = __fmaf_rn(values.x, weight, out[half][i * 2] * old);
        out[half][i * 2 + 1] = __fmaf_rn(values.y, weight, out[half][i * 2 + 1] * old);
      }
    }
    __syncwarp();
    if (lane == 0) arrive(ring.free + from.stage);
    if ((header.flags & last_of_token) == 0) continue;

    const std::int64_t head = header.item / chunk.tokens_of_head();
    pair_result& state = chunk.states[header.item % chunk.tokens_of_head()];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float inverse = cuda::inverse_sum(sum[half]);
      const int r = half * 8 + g;
      std::uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        words[i] = cuda::storage<T>::pack(out[half][i * 2] * inverse, out[half][i * 2 + 1] * inverse);
      if (header.flags & token_goes_on) {
        state.out[half * 4 + quarter][lane] = {words[0], words[1], words[2], words[3]};
        if (quarter == 0 && t == 0) state.stats[r] = {most[half], sum[half]};
      } else {
        transpose_words(words);
        char* const to =
            call.out + (header.row * call.out_row_stride + (head * call.group + r) * call.out_head_stride) * 2;
        if (r < call.group)
          *reinterpret_cast<uint4*>(to + (quarter * 4 + t) * 16) = uint4{words[0], words[1], words[2], words[3]};
        if (quarter == 0 && t == 0 && r < call.group) write_lse(call, header.row, head, r, most[half], sum[half]);
      }
    }
    if ((header.flags & last_of_unit) == 0) continue;
    __syncwarp();
    if (lane == 0) tell(chunk.units_done + header.pass, 1);
    __syncwarp();
  }
}

}  // namespace msabench::cuda_sm90

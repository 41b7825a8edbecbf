// SPDX-License-Identifier: Apache-2.0
// Adding up what a token has of its blocks, in ascending order, a warp for each token. What it has after a pass is the
// output as it would be without later blocks; the next pass of the token reads that again.
#pragma once

#include <math_constants.h>

#include <cstdint>

#include "kernels/cuda_sm90/attend_passes.cuh"
#include "kernels/cuda_sm90/attend_tiles.cuh"

namespace msabench::cuda_sm90 {

/// Results of a unit of tokens, of one warp.
struct unit_results {
  static constexpr int most = unit_pairs;
  std::uint32_t places[most];
  float2 stats[most][token_heads];  ///< greatest score, then weight; and sum of a row
};

/// What a token has so far, as the lanes of a warp have it: rows g and g + 8 of columns 8n + 2t and + 1, lane 4g + t;
/// greatest score and sum of row `lane % 16`.
template <class T>
struct token_sum {
  float out[64];
  float most, sum;

  __device__ void clear() {
#pragma unroll
    for (float& x : out) x = 0;
    most = -CUDART_INF_F, sum = 0;
  }
  __device__ void scale(float factor) {
    const int g = threadIdx.x % 32 / 4;
    const float factors[2] = {__shfl_sync(~0u, factor, g), __shfl_sync(~0u, factor, g + 8)};
#pragma unroll
    for (int i = 0; i < 64; ++i) out[i] *= factors[i / 2 % 2];
  }
  __device__ void add_words(const uint4& words, int part, float factor) {
    const std::uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 values = cuda::storage<T>::widen(reinterpret_cast<const typename cuda::storage<T>::pair&>(pairs[i]));
      const int first = (part % 4 * 4 + i) * 4 + part / 4 * 2;
      out[first] = __fmaf_rn(values.x, factor, out[first]);
      out[first + 1] = __fmaf_rn(values.y, factor, out[first + 1]);
    }
  }
  /// What write_token wrote.
  __device__ void read_output(const attend_call& call, std::int64_t row, std::int64_t head) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int part = 0; part < 8; ++part) {
      const int r = g + part / 4 * 8;
      const char* const from =
          call.out + (row * call.out_row_stride + (head * call.group + r) * call.out_head_stride) * 2;
      uint4 got{};
      if (r < call.group) got = __ldcg(reinterpret_cast<const uint4*>(from + (part % 4 * 4 + t) * 16));
      std::uint32_t words[4] = {got.x, got.y, got.z, got.w};
      transpose_words(words);
      add_words({words[0], words[1], words[2], words[3]}, part, 1);
    }
  }
};

/// `tokens` tokens of a head from `first` on, of the results of a pass, `at_once` results of a token at a time.
template <class T, int at_once>
__device__ void combine_unit(const attend_call& call, const attend_chunk& chunk, const pass_extent& pass,
                             std::int64_t head, std::int64_t first, int tokens, unit_results& results) {
  const int lane = threadIdx.x % 32, g = lane / 4, row = lane % token_heads, parity = lane / token_heads;
  const std::int64_t first_item = head * chunk.tokens_of_head() + first;
  const int listed = tokens * chunk.topk;
  std::uint64_t mine = 0, earlier = 0, later = 0;
  std::uint32_t pairs[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int at = i * 32 + lane;
    pairs[i] = at < listed ? chunk.blocks[first_item * chunk.topk + at].number : no_pair;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const bool there = pairs[i] != no_pair;
    mine |= std::uint64_t{__ballot_sync(~0u, there && pairs[i] >= pass.first_pair && pairs[i] < pass.end_pair)}
            << i * 32;
    earlier |= std::uint64_t{__ballot_sync(~0u, there && pairs[i] < pass.first_pair)} << i * 32;
    later |= std::uint64_t{__ballot_sync(~0u, there && pairs[i] >= pass.end_pair)} << i * 32;
  }
  const auto before = [](std::uint64_t mask, int at) {
    return at < 64 ? __popcll(mask & ((std::uint64_t{1} << at) - 1)) : __popcll(mask);
  };
  __syncwarp();  // readers of the unit before have done
#pragma unroll
  for (int i = 0; i < 2; ++i)
    if (mine >> (i * 32 + lane) & 1)
      results.places[before(mine, i * 32 + lane)] = pairs[i] % static_cast<std::uint32_t>(chunk.room);
  __syncwarp();
  const int all = __popcll(mine);
#pragma unroll 4
  for (int i = parity; i < all; i += 2)
    results.stats[i][row] = __ldcg(chunk.partial_stats + std::int64_t{results.places[i]} * token_heads + row);
  __syncwarp();

  for (int n = 0; n < tokens; ++n) {
    const int begin = before(mine, n * chunk.topk), end = before(mine, (n + 1) * chunk.topk);
    if (begin == end) continue;
    const bool has_earlier = before(earlier, (n + 1) * chunk.topk) > before(earlier, n * chunk.topk);
    const bool has_later = before(later, (n + 1) * chunk.topk) > before(later, n * chunk.topk);
    const std::int64_t item = first_item + n, token_row = chunk.tokens[item].row;
    float2* const state_stats = chunk.state_stats + item * token_heads + row;
    token_sum<T> sum;
    sum.clear();
    if (has_earlier) {
      sum.read_output(call, token_row, head);
      const float2 stats = __ldcg(state_stats);
      sum.most = stats.x, sum.sum = stats.y;
    }
    // A lane has a row, and every second block.
    float most = sum.most;
    for (int i = begin + parity; i < end; i += 2) most = fmaxf(most, results.stats[i][row].x);
    most = fmaxf(most, __shfl_xor_sync(~0u, most, token_heads));
    const float reference = cuda::reference_score(most);
    for (int i = begin + parity; i < end; i += 2) {
      const float2 stats = results.stats[i][row];
      results.stats[i][row].x = stats.y * cuda::exp2_approximately(stats.x - reference);
    }
    __syncwarp();
    if (has_earlier) {
      sum.sum *= cuda::exp2_approximately(sum.most - reference);
      sum.scale(sum.sum);
    }
    sum.most = most;
    for (int i = begin; i < end; ++i) sum.sum += results.stats[i][row].x;

#pragma unroll at_once
    for (int i = begin; i < end; ++i) {
      const uint4* const from = chunk.partial_out + std::int64_t{results.places[i]} * 8 * 32 + lane;
      uint4 parts[8];
#pragma unroll
      for (int part = 0; part < 8; ++part) parts[part] = __ldcs(from + part * 32);
      const float factors[2] = {results.stats[i][g].x, results.stats[i][g + 8].x};
#pragma unroll
      for (int part = 0; part < 8; ++part) sum.add_words(parts[part], part, factors[part / 4]);
    }
    const float inverse = cuda::inverse_sum(sum.sum);
    const float inverses[2] = {__shfl_sync(~0u, inverse, g), __shfl_sync(~0u, inverse, g + 8)};
    write_token<T>(call, token_row, head, sum.out, inverses);
    if (has_later) {
      if (lane < token_heads) *state_stats = {sum.most, sum.sum};
    } else if (lane < call.group) {
      write_lse(call, token_row, head, row, sum.most, sum.sum);
    }
  }
}

/// Adds up results of passes, unit by unit, until there are no more. By each of some warps.
template <class T, int at_once>
__device__ void combine_passes(const attend_call& call, const attend_chunk& chunk, unit_results& results) {
  const int lane = threadIdx.x % 32;
  const std::uint32_t units = chunk.units_of_pass(), all = static_cast<std::uint32_t>(chunk.pass_count()) * units;
  for (;;) {
    std::uint32_t ticket = 0;
    if (lane == 0) ticket = atomicAdd(chunk.tickets + 1, 1u);
    ticket = __shfl_sync(~0u, ticket, 0);
    if (ticket >= all) return;
    const std::uint32_t number = ticket / units, unit = ticket % units;
    const pass_extent pass = chunk.passes[number];
    if (pass.works == 0) continue;
    const std::int64_t stream = number / static_cast<std::uint32_t>(chunk.ranges);
    const std::int64_t segment = stream % chunk.segments, head = stream / chunk.segments;
    const std::int64_t segment_tokens = chunk.segment_tiles * tile_tokens;
    const std::int64_t first = segment * segment_tokens + std::int64_t{unit} * chunk.unit_tokens;
    const std::int64_t end = min((segment + 1) * segment_tokens, chunk.tokens_of_head());
    wait_for_count(chunk.works_done + number, pass.works);
    // What tokens have of the range before is in `out`.
    if (number % chunk.ranges > 0) wait_for_count(chunk.units_done + number - 1, units);
    if (first < end)
      combine_unit<T, at_once>(call, chunk, pass, head, first,
                               static_cast<int>(min(end - first, std::int64_t{chunk.unit_tokens})), results);
    __syncwarp();
    if (lane == 0) tell(chunk.units_done + number);
  }
}

}  // namespace msabench::cuda_sm90

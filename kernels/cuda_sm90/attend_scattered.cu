// SPDX-License-Identifier: Apache-2.0
// Tokens whose neighbours read other blocks: block by block. A thread block has the keys and values of a block in
// shared memory, for up to 32 of the tokens that selected it; a warpgroup computes four of them at a time, 64 rows.
// What a token has of a block is stored, rounded, and a second kernel adds up the blocks of a token in ascending order.
//
// One warp brings blocks, one brings queries, three warpgroups take turns at the tiles of four tokens, whichever block
// these are of: so each has products while the others have exponentials.
#include <math_constants.h>

#include <algorithm>
#include <cfloat>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda_sm90/attend_kernels.h"
#include "kernels/cuda_sm90/attend_scaled.cuh"
#include "kernels/cuda_sm90/overlap.cuh"

namespace msabench::cuda_sm90 {
namespace {

/// Stored: what keys and values are in memory. Four warps that convert take the place of a warpgroup that multiplies.
template <class Stored>
struct scattered_shared {
  static constexpr bool scaled = is_scaled<Stored>;
  static constexpr int block_stages = 2, consumers = scaled ? 2 : 3, query_stages = 2 * consumers;
  static constexpr int threads = 128 * (1 + consumers + scaled);
  static constexpr int producer_registers = scaled ? 40 : 32, consumer_registers = scaled ? 176 : 160,
                       converting_registers = scaled ? 88 : 0;
  // Nobody gets more than a thread block has from the start.
  static_assert((producer_registers + consumers * consumer_registers + converting_registers) * 128 <=
                65536 / threads / 8 * 8 * threads);

  alignas(1024) unsigned char keys[block_stages][block_bytes];
  alignas(1024) unsigned char values[block_stages][block_bytes];
  alignas(1024) unsigned char queries[query_stages][query_bytes];
  float key_scales[block_stages][scaled ? block_keys : 1], value_scales[block_stages][scaled ? block_keys : 1];
  block_work works[block_stages];                         ///< count 0: there are no more
  std::uint32_t visible[query_stages][warpgroup_tokens];  ///< keys of the block that a token sees
  barrier work_ready[block_stages], keys_ready[block_stages], values_ready[block_stages], block_free[block_stages];
  barrier queries_ready[query_stages], queries_free[query_stages];

  __device__ void make_barriers() {
    for (int i = 0; i < block_stages; ++i) {
      make_barrier(work_ready + i, 1);
      make_barrier(keys_ready + i, scaled ? converting_warps : 1);
      make_barrier(values_ready + i, scaled ? converting_warps : 1);
      make_barrier(block_free + i, consumers * 4 + 1);  // warps of consumers, and the one that brings queries
    }
    for (int i = 0; i < query_stages; ++i) {
      make_barrier(queries_ready + i, 1);
      make_barrier(queries_free + i, 4);
    }
    publish_barriers();
  }
};
static_assert(sizeof(scattered_shared<__nv_bfloat16>) <= 227 * 1024);
static_assert(sizeof(scattered_shared<__nv_fp8_e4m3>) <= 227 * 1024);

using block_ring = ring_place<scattered_shared<__nv_bfloat16>::block_stages>;
template <class Stored>
using query_ring = ring_place<scattered_shared<Stored>::query_stages>;

/// The last blocks of sequences have most tokens, so works are taken from the end.
template <class Stored>
__device__ void bring_blocks(const attend_call& call, const attend_maps& maps, const attend_chunk& chunk,
                             attend_pass pass, scattered_shared<Stored>& shared) {
  const int lane = threadIdx.x % 32;
  const std::uint32_t end = pass.end_work(chunk), all = end - pass.first_work(chunk);
  const block_work* const works = chunk.works + pass.group * chunk.works_of_group;
  std::uint32_t* const cursor = chunk.work_cursors + pass.group * chunk.ranges + pass.range;
  const auto max_blocks = static_cast<std::uint32_t>(chunk.max_blocks);
  const cache_policy policy = keep_least();
  std::uint32_t number = blockIdx.x;
  for (block_ring at;; at.next()) {
    block_work work{};
    block_source source;
    if (number < all) {
      work = works[end - 1 - number];
      source = {call, maps.rows_of_box, work.block / max_blocks, work.block % max_blocks};
    }
    std::uint32_t taken = 0;
    if (lane == 0) taken = atomicAdd(cursor, 1u);
    wait_for(shared.block_free + at.stage, at.parity ^ 1);
    if (lane == 0) {
      shared.works[at.stage] = work;
      arrive(shared.work_ready + at.stage);
    }
    if (work.count == 0) return;
    if constexpr (!is_scaled<Stored>) {
      const auto head = static_cast<std::int32_t>(work.head);
      bring_block(source, call.keys, maps.k, maps.rows_of_box, head, shared.keys[at.stage],
                  shared.keys_ready + at.stage, policy);
      bring_block(source, call.values, maps.v, maps.rows_of_box, head, shared.values[at.stage],
                  shared.values_ready + at.stage, policy);
    }
    number = gridDim.x + __shfl_sync(~0u, taken, 0);
  }
}

/// Brings blocks of e4m3, by all warps of a warpgroup.
__device__ void widen_blocks(const attend_call& call, const attend_chunk& chunk,
                             scattered_shared<__nv_fp8_e4m3>& shared) {
  const auto max_blocks = static_cast<std::uint32_t>(chunk.max_blocks);
  for (block_ring at;; at.next()) {
    wait_for(shared.work_ready + at.stage, at.parity);
    const block_work work = shared.works[at.stage];
    if (work.count == 0) return;
    const auto head = static_cast<std::int32_t>(work.head);
    const std::uint32_t sequence = work.block / max_blocks, block = work.block % max_blocks;
    const scaled_rows keys(call, call.keys, sequence, head, block), values(call, call.values, sequence, head, block);
    widen_block(keys, shared.keys[at.stage], shared.key_scales[at.stage]);
    finish_block(shared.keys_ready + at.stage);
    widen_block(values, shared.values[at.stage], shared.value_scales[at.stage]);
    finish_block(shared.values_ready + at.stage);
  }
}

template <class Stored>
__device__ void bring_queries(const attend_call& call, const attend_maps& maps, const attend_chunk& chunk,
                              attend_pass pass, scattered_shared<Stored>& shared) {
  const int lane = threadIdx.x % 32;
  const token_pair* const pairs = chunk.pairs + pass.group * chunk.pairs_of_group();
  const cache_policy policy = keep_longest();
  query_ring<Stored> to;
  for (block_ring at;; at.next()) {
    wait_for(shared.work_ready + at.stage, at.parity);
    const block_work work = shared.works[at.stage];
    __syncwarp();
    if (lane == 0) arrive(shared.block_free + at.stage);
    if (work.count == 0) return;
    const auto count = static_cast<int>(work.count);
    const token_pair pair = lane < count ? pairs[work.first_pair + lane] : token_pair{};
    for (int first = 0; first < count; first += warpgroup_tokens, to.next()) {
      wait_for(shared.queries_free + to.stage, to.parity ^ 1);
      const int tokens = min(warpgroup_tokens, count - first), token = lane - first;
      const bool mine = token >= 0 && token < tokens;
      if (mine) shared.visible[to.stage][token] = pair.keys;
      __syncwarp();
      if (token == 0) arrive_expecting(shared.queries_ready + to.stage, tokens * token_bytes(call.group));
      __syncwarp();
      if (mine)
        copy_token(maps, call.group, static_cast<std::int32_t>(work.head), pair.row, token, shared.queries[to.stage],
                   shared.queries_ready + to.stage, policy);
    }
  }
}

/// The result of a token and a block: the sum of weighted values over the sum of weights, rounded, in the order in
/// which the lanes have it; greatest scores and sums of rows apart.
template <class T>
__device__ void store_partial(const attend_chunk& chunk, std::int64_t place, const float (&out)[64],
                              const float (&most)[2], const float (&sum)[2]) {
  const int lane = threadIdx.x % 32;
  uint4* const to = chunk.partial_out + place * 8 * 32 + lane;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float inverse = cuda::inverse_sum(sum[half]);
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      std::uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int first = (part * 4 + i) * 4 + half * 2;
        words[i] = cuda::storage<T>::pack(out[first] * inverse, out[first + 1] * inverse);
      }
      __stcs(to + (half * 4 + part) * 32, uint4{words[0], words[1], words[2], words[3]});
    }
    if (lane % 4 == 0) __stcs(chunk.partial_stats + place * 16 + half * 8 + lane / 4, float2{most[half], sum[half]});
  }
}

template <class T, class Stored>
__device__ void consume(const attend_call& call, const attend_chunk& chunk, attend_pass pass, int consumer,
                        scattered_shared<Stored>& shared) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  // No score of -infinity may meet a factor of 0.
  const float scale = fmaxf(call.scale * static_cast<float>(CUDART_L2E), FLT_MIN);
  const std::uint32_t first_pair = pass.first_pair(chunk);
  query_ring<Stored> from;
  for (block_ring at;; at.next()) {
    wait_for(shared.work_ready + at.stage, at.parity);
    const block_work work = shared.works[at.stage];
    if (work.count == 0) return;
    for (std::uint32_t first = 0; first < work.count; first += warpgroup_tokens, from.next()) {
      if (from.stage % scattered_shared<Stored>::consumers != consumer) continue;
      wait_for(shared.queries_ready + from.stage, from.parity);
      const auto keys = static_cast<int>(shared.visible[from.stage][warp]);
      wait_for(shared.keys_ready + at.stage, at.parity);
      float scores[64];
      begin_products();
      score_block<T>(scores, k_major_descriptor(cuda::shared_address(shared.queries[from.stage])),
                     k_major_descriptor(cuda::shared_address(shared.keys[at.stage])));
      commit_products();
      finish_products<0>();
      pin(scores);
      __syncwarp();
      if (lane == 0) arrive(shared.queries_free + from.stage);

      if constexpr (is_scaled<Stored>) scale_columns(scores, shared.key_scales[at.stage]);
      if (keys < block_keys) hide_keys(scores, keys);
      float most[2], sum[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        most[half] = greatest_of_row(scores, half) * scale;
        sum[half] = cuda::row_sum(weigh_row(scores, half, scale, cuda::reference_score(most[half])));
      }
      wait_for(shared.values_ready + at.stage, at.parity);
      if constexpr (is_scaled<Stored>) scale_columns(scores, shared.value_scales[at.stage]);
      std::uint32_t weights[key_steps][4];
      pack_weights<T>(scores, weights);
      float out[64];
      begin_products();
      weigh_block<T>(out, weights,
                     mn_major_descriptor(cuda::shared_address(shared.values[at.stage]), block_panel_bytes), false);
      commit_products();
      finish_products<0>();
      pin(out);
      if (first + warp < work.count)
        store_partial<T>(chunk, work.first_pair + first + warp - first_pair, out, most, sum);
    }
    __syncwarp();
    if (lane == 0) arrive(shared.block_free + at.stage);
  }
}

template <class T, class Stored>
__global__ void __launch_bounds__(scattered_shared<Stored>::threads, 1)
    attend_blocks(const __grid_constant__ attend_maps maps, const __grid_constant__ attend_call call,
                  const __grid_constant__ attend_chunk chunk, attend_pass pass) {
  using S = scattered_shared<Stored>;
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<S*>(memory);
  begin_in_turn();
  if (blockIdx.x >= pass.end_work(chunk) - pass.first_work(chunk)) return;
  if (threadIdx.x == 0) shared.make_barriers();
  __syncthreads();
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), group = warp / 4;
  if (group == 0) {
    give_registers<S::producer_registers>();
    if (warp == 0) bring_blocks(call, maps, chunk, pass, shared);
    if (warp == 1) bring_queries(call, maps, chunk, pass, shared);
  } else if (group <= S::consumers) {
    take_registers<S::consumer_registers>();
    consume<T>(call, chunk, pass, group - 1, shared);
  } else if constexpr (S::scaled) {
    give_registers<S::converting_registers>();
    widen_blocks(call, chunk, shared);
  }
}

/// A warp for each token of the heads of a group.
constexpr int combine_warps = 4;

/// What a token has so far, as the lanes of a warp have it: rows g and g + 8 of columns 8n + 2t and + 1, lane 4g + t;
/// greatest score and sum of row `lane % 16`. Between passes it is the output that it would be without later blocks.
template <class T>
struct token_state {
  float out[64];
  float most, sum;

  __device__ void add(const uint4& four, int part, float factor) {
    const std::uint32_t words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 values = cuda::storage<T>::widen(reinterpret_cast<const typename cuda::storage<T>::pair&>(words[i]));
      const int first = (part % 4 * 4 + i) * 4 + part / 4 * 2;
      out[first] = __fmaf_rn(values.x, factor, out[first]);
      out[first + 1] = __fmaf_rn(values.y, factor, out[first + 1]);
    }
  }
  /// What write_token wrote, times the weights of its rows, which are in lanes 0 to 15.
  __device__ void add_output(const attend_call& call, std::int64_t row, std::int64_t head, float weight) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const float weights[2] = {__shfl_sync(~0u, weight, g), __shfl_sync(~0u, weight, g + 8)};
#pragma unroll
    for (int part = 0; part < 8; ++part) {
      const int r = g + part / 4 * 8;
      const char* const from =
          call.out + (row * call.out_row_stride + (head * call.group + r) * call.out_head_stride) * 2;
      uint4 got{};
      if (r < call.group) got = __ldcg(reinterpret_cast<const uint4*>(from + (part % 4 * 4 + t) * 16));
      std::uint32_t words[4] = {got.x, got.y, got.z, got.w};
      transpose_words(words);
      add({words[0], words[1], words[2], words[3]}, part, weights[part / 4]);
    }
  }
};

template <class T>
__global__ void __launch_bounds__(32 * combine_warps)
    combine_blocks(const __grid_constant__ attend_call call, const __grid_constant__ attend_chunk chunk,
                   attend_pass pass) {
  __shared__ float weights_of[combine_warps][most_listed][token_heads];
  __shared__ std::uint32_t places_of[combine_warps][most_listed];
  begin_in_turn();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4;
  auto& weights = weights_of[warp];
  auto& places = places_of[warp];
  const std::int64_t item =
      pass.group * chunk.heads_of_group * chunk.tokens_of_head() + std::int64_t{blockIdx.x} * combine_warps + warp;
  const std::int64_t head = item / chunk.tokens_of_head(), local = item % chunk.tokens_of_head();
  if (head >= min((pass.group + 1) * chunk.heads_of_group, chunk.heads)) return;
  if (pass.first_work(chunk) == pass.end_work(chunk)) return;
  const listed_token token = chunk.tokens[item];
  const bool is_block = lane < static_cast<int>(token.count);
  const listed_block block = is_block ? chunk.blocks[item * chunk.topk + lane] : listed_block{};
  const unsigned lanes = __ballot_sync(~0u, is_block && block.pass == static_cast<unsigned>(pass.range));
  const int count = __popc(lanes);
  if (count == 0) return;
  const bool has_earlier = __any_sync(~0u, is_block && block.pass < static_cast<unsigned>(pass.range));
  const bool has_later = __any_sync(~0u, is_block && block.pass > static_cast<unsigned>(pass.range));
  if (lanes >> lane & 1) places[__popc(lanes & ((1u << lane) - 1))] = block.place;
  __syncwarp();

  // A lane has a row, and every second block; the sums of both are added up in the order of blocks.
  token_state<T> state{};
  float2* const state_stats = chunk.state_stats + local * token_heads + lane % token_heads;
  const float2 before = has_earlier ? *state_stats : float2{-CUDART_INF_F, 0};
  state.most = before.x;
  const int row = lane % token_heads, parity = lane / token_heads;
  float most = state.most;
  for (int i = parity; i < count; i += 2)
    most = fmaxf(most, __ldcg(chunk.partial_stats + std::int64_t{places[i]} * 16 + row).x);
  most = fmaxf(most, __shfl_xor_sync(~0u, most, token_heads));
  const float reference = cuda::reference_score(most);
  for (int i = parity; i < count; i += 2) {
    const float2 stats = __ldcg(chunk.partial_stats + std::int64_t{places[i]} * 16 + row);
    weights[i][row] = stats.y * cuda::exp2_approximately(stats.x - reference);
  }
  __syncwarp();
  if (has_earlier) {
    state.sum = before.y * cuda::exp2_approximately(before.x - reference);
    state.add_output(call, token.row, head, state.sum);
  }
  state.most = most;
  for (int i = 0; i < count; ++i) state.sum += weights[i][row];

#pragma unroll 2
  for (int i = 0; i < count; ++i) {
    const uint4* const from = chunk.partial_out + std::int64_t{places[i]} * 8 * 32 + lane;
    uint4 parts[8];
#pragma unroll
    for (int part = 0; part < 8; ++part) parts[part] = __ldcs(from + part * 32);
    const float factors[2] = {weights[i][g], weights[i][g + 8]};
#pragma unroll
    for (int part = 0; part < 8; ++part) state.add(parts[part], part, factors[part / 4]);
  }
  const float inverses[2] = {cuda::inverse_sum(__shfl_sync(~0u, state.sum, g)),
                             cuda::inverse_sum(__shfl_sync(~0u, state.sum, g + 8))};
  write_token<T>(call, token.row, head, state.out, inverses);
  if (has_later) {
    if (lane < token_heads) *state_stats = {state.most, state.sum};
  } else if (lane < call.group) {
    write_lse(call, token.row, head, row, state.most, state.sum);
  }
}

template <class T, class Stored = T>
void attend_as(const attend_call& call, const attend_maps& maps, const attend_chunk& chunk, cudaStream_t stream) {
  using S = scattered_shared<Stored>;
  cuda::allow_shared_memory(attend_blocks<T, Stored>, sizeof(S));
  const std::int64_t tokens = chunk.heads_of_group * chunk.tokens_of_head();
  const auto combine_grid = static_cast<unsigned>(cuda::ceil_div(tokens, combine_warps));
  for (attend_pass pass{}; pass.group < chunk.groups; ++pass.group)
    for (pass.range = 0; pass.range < chunk.ranges; ++pass.range) {
      launch_in_turn(attend_blocks<T, Stored>, static_cast<unsigned>(cuda::multiprocessors()), S::threads, sizeof(S),
                     stream, maps, call, chunk, pass);
      launch_in_turn(combine_blocks<T>, combine_grid, 32 * combine_warps, 0, stream, call, chunk, pass);
    }
}

}  // namespace

void attend_scattered_tokens(const attend_call& call, const attend_maps& maps, const attend_chunk& chunk,
                             cudaStream_t stream) {
  if (same_type(call.keys.type, e4m3_type))
    attend_as<__nv_bfloat16, __nv_fp8_e4m3>(call, maps, chunk, stream);
  else if (same_type(call.q_type, bf16_type))
    attend_as<__nv_bfloat16>(call, maps, chunk, stream);
  else
    attend_as<__half>(call, maps, chunk, stream);
}

}  // namespace msabench::cuda_sm90

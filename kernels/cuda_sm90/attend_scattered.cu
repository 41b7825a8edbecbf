// SPDX-License-Identifier: Apache-2.0
// Tokens whose neighbours read other blocks: block by block. A thread block has the keys and values of a block in
// shared memory, for up to 32 of the tokens that selected it; a warpgroup computes four of them at a time, 64 rows.
// What a token has of a block is stored, rounded. When all of a pass are there, other warps add up the blocks of each
// token, while the next pass is computed: one is a matter of memory alone.
//
// One warp brings blocks, one brings queries, one tells what is done, one brings results. Two warpgroups take turns at
// the tiles of four tokens, whichever block these are of: so each has products while the other has exponentials. One
// adds up.
#include <math_constants.h>

#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda_sm90/attend_combine.cuh"
#include "kernels/cuda_sm90/attend_kernels.h"
#include "kernels/cuda_sm90/attend_passes.cuh"
#include "kernels/cuda_sm90/attend_scaled.cuh"
#include "kernels/cuda_sm90/overlap.cuh"

namespace msabench::cuda_sm90 {
namespace {

/// Stored: what keys and values are in memory.
template <class Stored>
struct scattered_shared {
  static constexpr bool scaled = is_scaled<Stored>;
  static constexpr int block_stages = 2, consumers = 2, query_stages = 2 * consumers, result_stages = scaled ? 7 : 8;
  static constexpr int threads = 128 * (2 + consumers + scaled);
  static constexpr int producer_registers = 56, consumer_registers = scaled ? 136 : 192, combining_registers = 64,
                       converting_registers = scaled ? 88 : 0;
  // Nobody gets more than a thread block has from the start.
  static_assert((producer_registers + consumers * consumer_registers + combining_registers + converting_registers) *
                    128 <=
                65536 / threads / 8 * 8 * threads);

  alignas(1024) unsigned char keys[block_stages][block_bytes];
  alignas(1024) unsigned char values[block_stages][block_bytes];
  alignas(1024) unsigned char queries[query_stages][query_bytes];
  block_work works[block_stages];                         ///< count 0: there are no more
  std::uint32_t visible[query_stages][warpgroup_tokens];  ///< keys of the block that a token sees
  result_ring<result_stages> results;
  float key_scales[block_stages][scaled ? block_keys : 1], value_scales[block_stages][scaled ? block_keys : 1];
  barrier work_ready[block_stages], keys_ready[block_stages], values_ready[block_stages], block_free[block_stages];
  barrier queries_ready[query_stages], queries_free[query_stages];

  __device__ void make_barriers() {
    results.make_barriers();
    for (int i = 0; i < block_stages; ++i) {
      make_barrier(work_ready + i, 1);
      make_barrier(keys_ready + i, scaled ? converting_warps : 1);
      make_barrier(values_ready + i, scaled ? converting_warps : 1);
      make_barrier(block_free + i, consumers * 4 + 2);  // warps of consumers, those that bring queries and that tell
    }
    for (int i = 0; i < query_stages; ++i) {
      make_barrier(queries_ready + i, 1);
      make_barrier(queries_free + i, 4);
    }
    publish_barriers();
  }
};
static_assert(sizeof(scattered_shared<__nv_fp8_e4m3>) <= 227 * 1024);

using block_ring = ring_place<scattered_shared<__nv_bfloat16>::block_stages>;
using query_ring = ring_place<scattered_shared<__nv_bfloat16>::query_stages>;

template <class Stored>
__device__ void bring_blocks(const attend_call& call, const attend_maps& maps, const attend_chunk& chunk,
                             scattered_shared<Stored>& shared) {
  const int lane = threadIdx.x % 32;
  const std::uint32_t all = *chunk.work_count;
  const auto max_blocks = static_cast<std::uint32_t>(chunk.max_blocks);
  const cache_policy policy = keep_least();
  const auto take = [&] { return lane == 0 ? atomicAdd(chunk.tickets, 1u) : 0; };
  std::uint32_t taken = take();
  for (block_ring at;; at.next()) {
    const std::uint32_t number = __shfl_sync(~0u, taken, 0);
    block_work work{};
    block_source source;
    if (number < all) {
      work = chunk.works[number];
      source = {call, maps.rows_of_box, work.block / max_blocks, work.block % max_blocks};
    }
    taken = take();
    wait_for(shared.block_free + at.stage, at.parity ^ 1);
    if (lane == 0) {
      shared.works[at.stage] = work;
      arrive(shared.work_ready + at.stage);
    }
    if (work.count == 0) return;
    if constexpr (is_scaled<Stored>) continue;  // others do
    const std::int32_t head = chunk.head_of_pass(work.pass);
    bring_block(source, call.keys, maps.k, maps.rows_of_box, head, shared.keys[at.stage], shared.keys_ready + at.stage,
                policy);
    bring_block(source, call.values, maps.v, maps.rows_of_box, head, shared.values[at.stage],
                shared.values_ready + at.stage, policy);
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
    const std::int32_t head = chunk.head_of_pass(work.pass);
    const std::uint32_t sequence = work.block / max_blocks, block = work.block % max_blocks;
    const scaled_rows keys(call, call.keys, sequence, head, block), values(call, call.values, sequence, head, block);
    widen_block(keys, shared.keys[at.stage], shared.key_scales[at.stage]);
    finish_block(shared.keys_ready + at.stage);
    widen_block(values, shared.values[at.stage], shared.value_scales[at.stage]);
    finish_block(shared.values_ready + at.stage);
  }
}

/// No queries come before there is room for the results.
template <class Stored>
__device__ void bring_queries(const attend_call& call, const attend_maps& maps, const attend_chunk& chunk,
                              scattered_shared<Stored>& shared) {
  const int lane = threadIdx.x % 32;
  const cache_policy policy = keep_longest();
  result_places places;
  query_ring to;
  for (block_ring at;; at.next()) {
    wait_for(shared.work_ready + at.stage, at.parity);
    const block_work work = shared.works[at.stage];
    __syncwarp();
    if (lane == 0) arrive(shared.block_free + at.stage);
    if (work.count == 0) return;
    const auto count = static_cast<int>(work.count);
    const std::int32_t head = chunk.head_of_pass(work.pass);
    const token_pair pair = lane < count ? chunk.pairs[work.first_pair + lane] : token_pair{};
    places.wait(chunk, work);
    __syncwarp();
    for (int first = 0; first < count; first += warpgroup_tokens, to.next()) {
      wait_for(shared.queries_free + to.stage, to.parity ^ 1);
      const int tokens = min(warpgroup_tokens, count - first), token = lane - first;
      const bool mine = token >= 0 && token < tokens;
      if (mine) shared.visible[to.stage][token] = pair.keys;
      __syncwarp();
      if (token == 0) arrive_expecting(shared.queries_ready + to.stage, tokens * token_bytes(call.group));
      __syncwarp();
      if (mine)
        copy_token(maps, call.group, head, pair.row, token, shared.queries[to.stage], shared.queries_ready + to.stage,
                   policy);
    }
  }
}

/// Tells other thread blocks of works that are done here.
template <class Stored>
__device__ void tell_works(const attend_chunk& chunk, scattered_shared<Stored>& shared) {
  for (block_ring at;; at.next()) {
    wait_for(shared.work_ready + at.stage, at.parity);
    const block_work work = shared.works[at.stage];
    __syncwarp();
    if (work.count == 0) return;
    if (threadIdx.x % 32 == 0) arrive(shared.block_free + at.stage);
    wait_for(shared.block_free + at.stage, at.parity);
    if (threadIdx.x % 32 == 0) tell(chunk.works_done + work.pass, 1);
  }
}

/// The result of a token and a block, from weighted values and sums of weights.
template <class T>
__device__ void store_result(pair_result& to, const float (&out)[64], const float (&most)[2], const float (&sum)[2]) {
  const int lane = threadIdx.x % 32;
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
      __stcs(&to.out[half * 4 + part][lane], uint4{words[0], words[1], words[2], words[3]});
    }
    if (lane % 4 == 0) __stcs(&to.stats[half * 8 + lane / 4], float2{most[half], sum[half]});
  }
}

template <class T, class Stored>
__device__ void consume(const attend_call& call, const attend_chunk& chunk, int consumer,
                        scattered_shared<Stored>& shared) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const float scale = call.scale * static_cast<float>(CUDART_L2E);
  const auto room = static_cast<std::uint32_t>(chunk.room);
  query_ring from;
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
        store_result<T>(chunk.results[(work.first_pair + first + warp) % room], out, most, sum);
    }
    __syncwarp();
    if (lane == 0) arrive(shared.block_free + at.stage);
  }
}

template <class T, class Stored>
__global__ void __launch_bounds__(scattered_shared<Stored>::threads, 1)
    attend_blocks(const __grid_constant__ attend_maps maps, const __grid_constant__ attend_call call,
                  const __grid_constant__ attend_chunk chunk) {
  using S = scattered_shared<Stored>;
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<S*>(memory);
  begin_in_turn();
  if (*chunk.work_count == 0) return;
  if (threadIdx.x == 0) shared.make_barriers();
  __syncthreads();
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), group = warp / 4;
  if (group == 0) {
    give_registers<S::producer_registers>();
    if (warp == 0) bring_blocks(call, maps, chunk, shared);
    if (warp == 1) bring_queries(call, maps, chunk, shared);
    if (warp == 2) tell_works(chunk, shared);
    if (warp == 3) bring_results(chunk, shared.results);
  } else if (group <= S::consumers) {
    take_registers<S::consumer_registers>();
    consume<T>(call, chunk, group - 1, shared);
  } else if (group == S::consumers + 1) {
    give_registers<S::combining_registers>();
    combine_results<T>(call, chunk, shared.results);
  } else if constexpr (S::scaled) {
    give_registers<S::converting_registers>();
    widen_blocks(call, chunk, shared);
  }
}

template <class T, class Stored = T>
void attend_as(const attend_call& call, const attend_maps& maps, const attend_chunk& chunk, cudaStream_t stream) {
  using S = scattered_shared<Stored>;
  cuda::allow_shared_memory(attend_blocks<T, Stored>, sizeof(S));
  launch_in_turn(attend_blocks<T, Stored>, static_cast<unsigned>(cuda::multiprocessors()), S::threads, sizeof(S),
                 stream, maps, call, chunk);
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

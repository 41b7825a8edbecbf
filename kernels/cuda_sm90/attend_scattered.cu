// SPDX-License-Identifier: Apache-2.0
// Tokens whose neighbours read other blocks: block by block. A thread block has the keys and values of a block in
// shared memory, for up to 32 of the tokens that selected it; a warpgroup computes four of them at a time, 64 rows, and
// adds to what these have of the blocks before.
//
// One warp brings blocks, one brings queries. Three warpgroups take turns at the tiles of four tokens, whichever block
// these are of: so each has products while the others have exponentials, or wait for sums.
#include <math_constants.h>

#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda_sm90/attend_kernels.h"
#include "kernels/cuda_sm90/attend_scaled.cuh"
#include "kernels/cuda_sm90/attend_sums.cuh"
#include "kernels/cuda_sm90/overlap.cuh"

namespace msabench::cuda_sm90 {
namespace {

constexpr int converting_registers = 88;

/// Stored: what keys and values are in memory. Registers of the warpgroup that converts leave room for one less.
template <class Stored>
struct scattered_shared {
  static constexpr bool scaled = is_scaled<Stored>;
  static constexpr int block_stages = 2, consumers = scaled ? 2 : 3, query_stages = 2 * consumers;
  static constexpr int threads = 128 * (1 + consumers + scaled);
  static constexpr int producer_registers = scaled ? 40 : 56, consumer_registers = scaled ? 176 : 152;

  alignas(1024) unsigned char keys[block_stages][block_bytes];
  alignas(1024) unsigned char values[block_stages][block_bytes];
  alignas(1024) unsigned char queries[query_stages][query_bytes];
  block_work works[block_stages];  ///< count 0: there are no more
  token_pair pairs[query_stages][warpgroup_tokens];
  float key_scales[block_stages][scaled ? block_keys : 1], value_scales[block_stages][scaled ? block_keys : 1];
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
static_assert(sizeof(scattered_shared<__nv_fp8_e4m3>) <= 227 * 1024);

static_assert(sizeof(scattered_shared<__nv_bfloat16>) <= 227 * 1024);

using block_ring = ring_place<scattered_shared<__nv_bfloat16>::block_stages>;
template <class Stored>
using query_ring = ring_place<scattered_shared<Stored>::query_stages>;

template <class Stored>
__device__ void bring_blocks(const attend_call& call, const attend_maps& maps, const attend_chunk& chunk,
                             scattered_shared<Stored>& shared) {
  const int lane = threadIdx.x % 32;
  const std::uint32_t all = *chunk.work_count;
  const auto max_blocks = static_cast<std::uint32_t>(chunk.max_blocks);
  const cache_policy policy = keep_least();
  const auto take = [&] { return lane == 0 ? atomicAdd(chunk.work_ticket, 1u) : 0; };
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
    const auto head = static_cast<std::int32_t>(work.head);
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
                              scattered_shared<Stored>& shared) {
  const int lane = threadIdx.x % 32;
  const cache_policy policy = keep_longest();
  query_ring<Stored> to;
  for (block_ring at;; at.next()) {
    wait_for(shared.work_ready + at.stage, at.parity);
    const block_work work = shared.works[at.stage];
    __syncwarp();
    if (lane == 0) arrive(shared.block_free + at.stage);
    if (work.count == 0) return;
    const auto count = static_cast<int>(work.count);
    const auto head = static_cast<std::int32_t>(work.head);
    const token_pair pair = lane < count ? chunk.pairs[work.first_pair + lane] : token_pair{};
    for (int first = 0; first < count; first += warpgroup_tokens, to.next()) {
      wait_for(shared.queries_free + to.stage, to.parity ^ 1);
      const int tokens = min(warpgroup_tokens, count - first), token = lane - first;
      const bool mine = token >= 0 && token < tokens;
      if (mine) shared.pairs[to.stage][token] = pair;
      __syncwarp();
      if (token == 0) arrive_expecting(shared.queries_ready + to.stage, tokens * token_bytes(call.group));
      __syncwarp();
      if (mine)
        copy_token(maps, call.group, head, pair.row, token, shared.queries[to.stage], shared.queries_ready + to.stage,
                   policy);
    }
  }
}

template <class T, class Stored>
__device__ void consume(const attend_call& call, const attend_chunk& chunk, int consumer,
                        scattered_shared<Stored>& shared) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const float scale = call.scale * static_cast<float>(CUDART_L2E);
  auto* const sums = static_cast<token_sums<T>*>(chunk.sums);
  query_ring<Stored> from;
  for (block_ring at;; at.next()) {
    wait_for(shared.work_ready + at.stage, at.parity);
    const block_work work = shared.works[at.stage];
    if (work.count == 0) return;
    for (std::uint32_t first = 0; first < work.count; first += warpgroup_tokens, from.next()) {
      if (from.stage % scattered_shared<Stored>::consumers != consumer) continue;
      wait_for(shared.queries_ready + from.stage, from.parity);
      const bool there = first + warp < work.count;
      const token_pair pair = shared.pairs[from.stage][warp];
      const auto keys = static_cast<int>(pair.keys);
      const std::uint32_t rank = pair.rank & ~token_pair::last_of_token;
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
      if (!there) continue;
      if (rank > 0) {
        wait_for_blocks(chunk.added + pair.item, rank);
        earlier_sums<T> earlier;
        earlier.load(sums[pair.item]);
        add_earlier(out, most, sum, earlier);
      } else {
        divide(out, sum);
      }
      if ((pair.rank & token_pair::last_of_token) == 0) {
        store_sums(sums[pair.item], out, most, sum);
        tell_blocks(chunk.added + pair.item, rank + 1);
      } else {
        write_token<T>(call, pair.row, work.head, out, {1, 1});
        if (lane % 4 == 0)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            if (const int r = lane / 4 + half * 8; r < call.group)
              write_lse(call, pair.row, work.head, r, most[half], sum[half]);
      }
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
  } else if (group <= S::consumers) {
    take_registers<S::consumer_registers>();
    consume<T>(call, chunk, group - 1, shared);
  } else if constexpr (S::scaled) {
    give_registers<converting_registers>();
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

// SPDX-License-Identifier: Apache-2.0
// Eight neighbouring tokens that mostly read the same blocks: all blocks that any of them reads, once for all. Each of
// two warpgroups has four tokens, 64 rows, whose sums stay in registers from block to block. A warp is a token, so a
// block that the token has not selected is hidden from a whole warp: its weights are 0 then, and change nothing.
//
// The products of a step are the scores of a block and the weighted values of the one before. Warpgroups take turns at
// them, so that one has products while the other has exponentials.
#include <math_constants.h>

#include <cfloat>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda_sm90/attend_kernels.h"
#include "kernels/cuda_sm90/attend_scaled.cuh"
#include "kernels/cuda_sm90/overlap.cuh"

namespace msabench::cuda_sm90 {
namespace {

/// Stored: what keys and values are in memory.
template <class Stored>
struct shared_tile_memory {
  static constexpr bool scaled = is_scaled<Stored>;
  static constexpr int block_stages = 2, query_stages = 2, consumers = tile_tokens / warpgroup_tokens;
  static constexpr int threads = 128 * (1 + consumers), producer_registers = scaled ? 88 : 56,
                       consumer_registers = scaled ? 208 : 224;
  // Nobody gets more than a thread block has from the start.
  static_assert((producer_registers + consumers * consumer_registers) * 128 <= 65536 / threads / 8 * 8 * threads);

  alignas(1024) unsigned char keys[block_stages][block_bytes];
  alignas(1024) unsigned char values[block_stages][block_bytes];
  alignas(1024) unsigned char queries[query_stages][consumers][query_bytes];
  shared_tile tiles[query_stages];  ///< blocks 0: there are no more
  std::uint32_t numbers[query_stages];
  shared_block blocks[block_stages];  ///< of keys
  float key_scales[block_stages][scaled ? block_keys : 1], value_scales[block_stages][scaled ? block_keys : 1];
  barrier keys_ready[block_stages], keys_free[block_stages], values_ready[block_stages], values_free[block_stages];
  barrier queries_ready[query_stages], queries_free[query_stages];

  __device__ void make_barriers() {
    constexpr int warps = consumers * 4;
    for (int i = 0; i < block_stages; ++i) {
      make_barrier(keys_ready + i, scaled ? converting_warps : 1);
      make_barrier(keys_free + i, warps);
      make_barrier(values_ready + i, scaled ? converting_warps : 1);
      make_barrier(values_free + i, warps);
    }
    for (int i = 0; i < query_stages; ++i) {
      make_barrier(queries_ready + i, 1);
      make_barrier(queries_free + i, warps);
    }
    publish_barriers();
  }
};
static_assert(sizeof(shared_tile_memory<__nv_fp8_e4m3>) <= 227 * 1024);

using block_ring = ring_place<shared_tile_memory<__nv_bfloat16>::block_stages>;
using query_ring = ring_place<shared_tile_memory<__nv_bfloat16>::query_stages>;

/// Brings the blocks of a tile, whole ones by the copy engine, by one warp.
__device__ void bring_tile_blocks(const attend_call& call, const attend_maps& maps, const shared_tile& tile,
                                  const shared_block* blocks, block_ring& to, auto& shared) {
  const int lane = threadIdx.x % 32;
  const cache_policy policy = keep_usually();
  const auto head = static_cast<std::int32_t>(tile.head);
  const std::uint32_t count = tile.blocks, sequence = tile.sequence;
  shared_block block = blocks[0];
  block_source source(call, maps.rows_of_box, sequence, block.block);
  for (std::uint32_t i = 0; i < count; ++i, to.next()) {
    const shared_block own = block;
    const block_source from = source;
    // The next one is looked up while this one waits for its place.
    if (i + 1 < count) {
      block = blocks[i + 1];
      source = {call, maps.rows_of_box, sequence, block.block};
    }
    wait_for(shared.keys_free + to.stage, to.parity ^ 1);
    if (lane == 0) shared.blocks[to.stage] = own;
    bring_block(from, call.keys, maps.k, maps.rows_of_box, head, shared.keys[to.stage], shared.keys_ready + to.stage,
                policy);
    wait_for(shared.values_free + to.stage, to.parity ^ 1);
    bring_block(from, call.values, maps.v, maps.rows_of_box, head, shared.values[to.stage],
                shared.values_ready + to.stage, policy);
  }
}

/// The same of e4m3, by each of the converting warps.
__device__ void widen_tile_blocks(const attend_call& call, const shared_tile& tile, const shared_block* blocks,
                                  block_ring& to, auto& shared) {
  const auto head = static_cast<std::int32_t>(tile.head);
  const std::uint32_t count = tile.blocks, sequence = tile.sequence;
  for (std::uint32_t i = 0; i < count; ++i, to.next()) {
    const shared_block block = blocks[i];
    const scaled_rows keys(call, call.keys, sequence, head, block.block);
    const scaled_rows values(call, call.values, sequence, head, block.block);
    wait_for(shared.keys_free + to.stage, to.parity ^ 1);
    if (threadIdx.x == 0) shared.blocks[to.stage] = block;
    // Both scales come with the keys.
    shared.value_scales[to.stage][threadIdx.x] = values.factor;
    widen_block(keys, shared.keys[to.stage], shared.key_scales[to.stage]);
    finish_block(shared.keys_ready + to.stage);
    wait_for(shared.values_free + to.stage, to.parity ^ 1);
    widen_block(values, shared.values[to.stage]);
    finish_block(shared.values_ready + to.stage);
  }
}

/// By one warp; of e4m3 by all converting warps, the first of which says which tile is next.
template <class Stored>
__device__ void bring_tiles(const attend_call& call, const attend_maps& maps, const attend_chunk& chunk,
                            shared_tile_memory<Stored>& shared) {
  const int lane = threadIdx.x % 32;
  const std::uint32_t all = chunk.tile_counts[0];
  std::uint32_t number = blockIdx.x;
  block_ring to;
  for (query_ring at;; at.next()) {
    if (threadIdx.x < 32) {
      const bool there = number < all;
      const shared_tile* const tile = chunk.shared_tiles + (there ? number : 0);
      const std::uint32_t tokens = there ? tile->tokens : 0;
      std::uint32_t taken = 0;
      if (lane == 0) taken = atomicAdd(chunk.tile_counts + 1, 1u);
      wait_for(shared.queries_free + at.stage, at.parity ^ 1);
      if (lane == 0) {
        shared.numbers[at.stage] = number;
        if (there)
          shared.tiles[at.stage] = *tile;
        else
          shared.tiles[at.stage].blocks = 0;
        arrive_expecting(shared.queries_ready + at.stage, tokens * token_bytes(call.group));
      }
      __syncwarp();
      if (lane < static_cast<int>(tokens))
        copy_token(maps, call.group, static_cast<std::int32_t>(tile->head), tile->first + lane, lane % warpgroup_tokens,
                   shared.queries[at.stage][lane / warpgroup_tokens], shared.queries_ready + at.stage, keep_least());
      number = gridDim.x + __shfl_sync(~0u, taken, 0);
    } else {
      wait_for(shared.queries_ready + at.stage, at.parity);
    }
    const shared_tile& tile = shared.tiles[at.stage];
    if (tile.blocks == 0) return;
    const shared_block* const blocks = chunk.shared_blocks + shared.numbers[at.stage] * chunk.blocks_of_tile;
    if constexpr (is_scaled<Stored>)
      widen_tile_blocks(call, tile, blocks, to, shared);
    else
      bring_tile_blocks(call, maps, tile, blocks, to, shared);
  }
}

/// Hides what a token does not read, and makes weights of scores. `most` and `sum`: of the token's rows so far; what
/// they have been weighed with is to be multiplied by `factors`. Sums are of this lane's columns.
__device__ __forceinline__ void weigh_scores(float (&scores)[64], int keys, float scale, float (&most)[2],
                                             float (&sum)[2], float (&factors)[2]) {
  if (keys < block_keys) hide_keys(scores, keys);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float before = most[half];
    most[half] = fmaxf(before, greatest_of_row(scores, half) * scale);
    const float reference = cuda::reference_score(most[half]);
    factors[half] = cuda::exp2_approximately(before - reference);
    sum[half] = __fmaf_rn(sum[half], factors[half], weigh_row(scores, half, scale, reference));
  }
}

/// Warpgroups start products one after the other, each as often as the other. Named barriers 1 and 2 are their turns.
class product_turns {
 public:
  __device__ explicit product_turns(int consumer) : own_(1 + consumer), other_(2 - consumer) {
    if (consumer == 1) pass_on();
  }
  __device__ void wait() const { meet(own_, threads); }
  __device__ void pass_on() const { asm volatile("bar.arrive %0, %1;" ::"r"(other_), "r"(threads) : "memory"); }
  /// Nobody is left waiting for, and no arrival left over.
  __device__ void end() const {
    if (own_ == 1) wait();
  }

 private:
  static constexpr int threads = 256;
  int own_, other_;
};
static_assert(shared_tile_memory<__nv_bfloat16>::consumers == 2);

template <class T, class Stored>
__device__ void consume(const attend_call& call, int consumer, shared_tile_memory<Stored>& shared) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, token = consumer * warpgroup_tokens + warp;
  // No score of -infinity may meet a factor of 0.
  const float scale = fmaxf(call.scale * static_cast<float>(CUDART_L2E), FLT_MIN);
  block_ring keys_at, values_at;
  const product_turns turns(consumer);
  constexpr bool scaled = is_scaled<Stored>;
  const auto release = [lane](barrier* b) {
    __syncwarp();
    if (lane == 0) arrive(b);
  };
  // Keys of the block at hand that the token reads.
  const auto keys_of = [&](std::uint32_t limit) -> int {
    const shared_block block = shared.blocks[keys_at.stage];
    const int left = static_cast<int>(limit) - static_cast<int>(block.block) * block_keys;
    return block.readers >> token & 1 ? max(left, 0) : 0;
  };
  for (query_ring at;; at.next()) {
    wait_for(shared.queries_ready + at.stage, at.parity);
    const std::uint32_t blocks = shared.tiles[at.stage].blocks, limit = shared.tiles[at.stage].limits[token];
    if (blocks == 0) return turns.end();
    const std::int64_t row = shared.tiles[at.stage].first + token, head = shared.tiles[at.stage].head;
    const std::uint64_t queries =
        one_for_all(k_major_descriptor(cuda::shared_address(shared.queries[at.stage][consumer])));
    const auto keys_descriptor = [&] {
      return one_for_all(k_major_descriptor(cuda::shared_address(shared.keys[keys_at.stage])));
    };
    const auto values_descriptor = [&] {
      return one_for_all(mn_major_descriptor(cuda::shared_address(shared.values[values_at.stage]), block_panel_bytes));
    };
    float scores[64], out[64], most[2] = {-CUDART_INF_F, -CUDART_INF_F}, sum[2] = {0, 0}, factors[2];
    std::uint32_t weights[key_steps][4];
    // Frees the keys as soon as nothing of them is needed.
    const auto weigh = [&](int keys) {
      const int stage = keys_at.stage;
      keys_at.next();
      if constexpr (!scaled) release(shared.keys_free + stage);
      if constexpr (scaled) scale_columns(scores, shared.key_scales[stage]);
      weigh_scores(scores, keys, scale, most, sum, factors);
      if constexpr (scaled) {
        scale_columns(scores, shared.value_scales[stage]);
        release(shared.keys_free + stage);
      }
    };

    wait_for(shared.keys_ready + keys_at.stage, keys_at.parity);
    turns.wait();
    begin_products();
    score_block<T>(scores, queries, keys_descriptor());
    commit_products();
    turns.pass_on();
    finish_products<0>();
    pin(scores);
    int keys = keys_of(limit);
    weigh(keys);
    pack_weights<T>(scores, weights);
#pragma unroll
    for (int j = 0; j < 64; ++j) out[j] = 0;

    for (std::uint32_t i = 1; i < blocks; ++i) {
      wait_for(shared.keys_ready + keys_at.stage, keys_at.parity);
      wait_for(shared.values_ready + values_at.stage, values_at.parity);
      keys = keys_of(limit);
      pin(out);
      turns.wait();
      begin_products();
      score_block<T>(scores, queries, keys_descriptor());
      commit_products();
      weigh_block<T>(out, weights, values_descriptor(), true);
      commit_products();
      turns.pass_on();
      finish_products<1>();
      pin(scores);
      weigh(keys);
      finish_products<0>();
      pin(out);
      release(shared.values_free + values_at.stage);
      values_at.next();
#pragma unroll
      for (int j = 0; j < 64; ++j) out[j] *= factors[j / 2 % 2];
      pack_weights<T>(scores, weights);
    }

    wait_for(shared.values_ready + values_at.stage, values_at.parity);
    turns.wait();
    begin_products();
    weigh_block<T>(out, weights, values_descriptor(), true);
    commit_products();
    turns.pass_on();
    finish_products<0>();
    pin(out);
    release(shared.values_free + values_at.stage);
    values_at.next();
    release(shared.queries_free + at.stage);
    if (limit == 0) continue;
    const float sums[2] = {cuda::row_sum(sum[0]), cuda::row_sum(sum[1])};
    const float inverses[2] = {cuda::inverse_sum(sums[0]), cuda::inverse_sum(sums[1])};
    write_token<T>(call, row, head, out, inverses);
    if (lane % 4 == 0)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        if (const int r = lane / 4 + half * 8; r < call.group) write_lse(call, row, head, r, most[half], sums[half]);
  }
}

template <class T, class Stored>
__global__ void __launch_bounds__(shared_tile_memory<Stored>::threads, 1)
    attend_tiles(const __grid_constant__ attend_maps maps, const __grid_constant__ attend_call call,
                 const __grid_constant__ attend_chunk chunk) {
  using S = shared_tile_memory<Stored>;
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<S*>(memory);
  begin_in_turn();
  if (blockIdx.x >= chunk.tile_counts[0]) return;
  if (threadIdx.x == 0) shared.make_barriers();
  __syncthreads();
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  if (warp < 4) {
    give_registers<S::producer_registers>();
    if (warp == 0 || S::scaled) bring_tiles(call, maps, chunk, shared);
  } else {
    take_registers<S::consumer_registers>();
    consume<T>(call, warp / 4 - 1, shared);
  }
}

template <class T, class Stored = T>
void attend_as(const attend_call& call, const attend_maps& maps, const attend_chunk& chunk, cudaStream_t stream) {
  using S = shared_tile_memory<Stored>;
  cuda::allow_shared_memory(attend_tiles<T, Stored>, sizeof(S));
  launch_in_turn(attend_tiles<T, Stored>, static_cast<unsigned>(cuda::multiprocessors()), S::threads, sizeof(S), stream,
                 maps, call, chunk);
}

}  // namespace

void attend_shared_tiles(const attend_call& call, const attend_maps& maps, const attend_chunk& chunk,
                         cudaStream_t stream) {
  if (same_type(call.keys.type, e4m3_type))
    attend_as<__nv_bfloat16, __nv_fp8_e4m3>(call, maps, chunk, stream);
  else if (same_type(call.q_type, bf16_type))
    attend_as<__nv_bfloat16>(call, maps, chunk, stream);
  else
    attend_as<__half>(call, maps, chunk, stream);
}

}  // namespace msabench::cuda_sm90

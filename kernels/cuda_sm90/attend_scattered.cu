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
  // A place of queries is always the same warpgroup's: of others' a parity would not tell it enough.
  static constexpr int consumers = scaled ? 2 : 3, panel_stages = 4, query_stages = 2 * consumers, work_stages = 4;
  static constexpr int threads = 128 * (1 + consumers + scaled);
  static constexpr int producer_registers = scaled ? 40 : 32, consumer_registers = scaled ? 176 : 160,
                       converting_registers = scaled ? 88 : 0;
  // Nobody gets more than a thread block has from the start.
  static_assert((producer_registers + consumers * consumer_registers + converting_registers) * 128 <=
                65536 / threads / 8 * 8 * threads);

  alignas(1024) unsigned char panels[panel_stages][block_bytes];  ///< keys of a block, its values, those of the next
  alignas(1024) unsigned char queries[query_stages][query_bytes];
  float scales[panel_stages][scaled ? block_keys : 1];
  block_work works[work_stages];                          ///< count 0: there are no more
  std::uint32_t visible[query_stages][warpgroup_tokens];  ///< keys of the block that a token sees
  barrier work_ready[work_stages], work_free[work_stages], panel_ready[panel_stages], panel_free[panel_stages];
  barrier queries_ready[query_stages], queries_free[query_stages];

  __device__ void make_barriers() {
    for (int i = 0; i < work_stages; ++i) {
      make_barrier(work_ready + i, 1);
      // Warps of consumers, those that convert, and the one that brings queries.
      make_barrier(work_free + i, consumers * 4 + (scaled ? converting_warps : 0) + 1);
    }
    for (int i = 0; i < panel_stages; ++i) {
      make_barrier(panel_ready + i, scaled ? converting_warps : 1);
      make_barrier(panel_free + i, consumers * 4);
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

using work_ring = ring_place<scattered_shared<__nv_bfloat16>::work_stages>;
using panel_ring = ring_place<scattered_shared<__nv_bfloat16>::panel_stages>;
template <class Stored>
using query_ring = ring_place<scattered_shared<Stored>::query_stages>;

/// The last blocks of sequences have most tokens, so works are taken from the end. What a work is, and where its keys
/// are, is looked up while those before it wait for their places.
template <class Stored>
__device__ void bring_blocks(const attend_call& call, const attend_maps& maps, const attend_chunk& chunk,
                             attend_pass pass, scattered_shared<Stored>& shared) {
  const int lane = threadIdx.x % 32;
  const std::uint32_t end = pass.end_work(chunk), all = end - pass.first_work(chunk);
  const block_work* const works = chunk.works + pass.group * chunk.works_of_group;
  std::uint32_t* const cursor = chunk.work_cursors + pass.group * chunk.ranges + pass.range;
  const auto max_blocks = static_cast<std::uint32_t>(chunk.max_blocks);
  const cache_policy policy = keep_least();
  const auto take = [&] { return lane == 0 ? atomicAdd(cursor, 1u) : 0; };
  const auto work_at = [&](std::uint32_t number) { return number < all ? works[end - 1 - number] : block_work{}; };
  const auto source_of = [&](const block_work& work) -> block_source {
    if (is_scaled<Stored> || work.count == 0) return {};
    return {call, maps.rows_of_box, work.block / max_blocks, work.block % max_blocks};
  };
  work_ring published;
  const auto publish = [&](const block_work& work) {
    wait_for(shared.work_free + published.stage, published.parity ^ 1);
    if (lane == 0) {
      shared.works[published.stage] = work;
      arrive(shared.work_ready + published.stage);
    }
    published.next();
  };
  std::uint32_t taken = take();
  block_work work = work_at(blockIdx.x), next = work_at(gridDim.x + __shfl_sync(~0u, taken, 0));
  taken = take();
  block_source source = source_of(work);
  publish(work);
  for (panel_ring to; work.count > 0;) {
    publish(next);
    const block_work own = work;
    const block_source from = source;
    work = next;
    source = source_of(work);
    if (work.count > 0) {
      next = work_at(gridDim.x + __shfl_sync(~0u, taken, 0));
      taken = take();
    }
    if constexpr (!is_scaled<Stored>) {
      const auto head = static_cast<std::int32_t>(own.head);
      wait_for(shared.panel_free + to.stage, to.parity ^ 1);
      bring_block(from, call.keys, maps.k, maps.rows_of_box, head, shared.panels[to.stage],
                  shared.panel_ready + to.stage, policy);
      to.next();
      wait_for(shared.panel_free + to.stage, to.parity ^ 1);
      bring_block(from, call.values, maps.v, maps.rows_of_box, head, shared.panels[to.stage],
                  shared.panel_ready + to.stage, policy);
      to.next();
    }
  }
}

/// Brings blocks of e4m3, by all warps of a warpgroup.
__device__ void widen_blocks(const attend_call& call, const attend_chunk& chunk,
                             scattered_shared<__nv_fp8_e4m3>& shared) {
  const auto max_blocks = static_cast<std::uint32_t>(chunk.max_blocks);
  panel_ring to;
  for (work_ring at;; at.next()) {
    wait_for(shared.work_ready + at.stage, at.parity);
    const block_work work = shared.works[at.stage];
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(shared.work_free + at.stage);
    if (work.count == 0) return;
    const auto head = static_cast<std::int32_t>(work.head);
    const std::uint32_t sequence = work.block / max_blocks, block = work.block % max_blocks;
    const scaled_rows keys(call, call.keys, sequence, head, block), values(call, call.values, sequence, head, block);
    for (const scaled_rows* rows : {&keys, &values}) {
      wait_for(shared.panel_free + to.stage, to.parity ^ 1);
      widen_block(*rows, shared.panels[to.stage], shared.scales[to.stage]);
      finish_block(shared.panel_ready + to.stage);
      to.next();
    }
  }
}

template <class Stored>
__device__ void bring_queries(const attend_call& call, const attend_maps& maps, const attend_chunk& chunk,
                              attend_pass pass, scattered_shared<Stored>& shared) {
  const int lane = threadIdx.x % 32;
  const token_pair* const pairs = chunk.pairs + pass.group * chunk.pairs_of_group();
  const cache_policy policy = keep_longest();
  work_ring at;
  // A work is published before the one before it is begun, so its pairs are read while queries of that are brought.
  const auto read_work = [&](block_work& work, token_pair& pair) {
    wait_for(shared.work_ready + at.stage, at.parity);
    work = shared.works[at.stage];
    __syncwarp();
    if (lane == 0) arrive(shared.work_free + at.stage);
    at.next();
    pair = lane < static_cast<int>(work.count) ? pairs[work.first_pair + lane] : token_pair{};
  };
  query_ring<Stored> to;
  block_work work, next;
  token_pair pair, next_pair;
  for (read_work(work, pair); work.count > 0; work = next, pair = next_pair) {
    read_work(next, next_pair);
    const auto count = static_cast<int>(work.count);
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
  constexpr int consumers = scattered_shared<Stored>::consumers;
  constexpr bool scaled = is_scaled<Stored>;
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  // No score of -infinity may meet a factor of 0.
  const float scale = fmaxf(call.scale * static_cast<float>(CUDART_L2E), FLT_MIN);
  const std::uint32_t first_pair = pass.first_pair(chunk);
  const auto release = [lane](barrier* b) {
    __syncwarp();
    if (lane == 0) arrive(b);
  };
  query_ring<Stored> from;
  panel_ring keys_at, values_at;
  values_at.next();
  bool has_turn = false;
  int until_own = consumer;  // tiles of the others before the next one of this warpgroup
  for (work_ring at;; at.next()) {
    wait_for(shared.work_ready + at.stage, at.parity);
    const block_work work = shared.works[at.stage];
    release(shared.work_free + at.stage);
    if (work.count == 0) break;
    bool has_panels = true;
    for (std::uint32_t first = 0; first < work.count; first += warpgroup_tokens, from.next()) {
      if (until_own-- > 0) continue;
      until_own = consumers - 1;
      const bool is_last = first + consumers * warpgroup_tokens >= work.count;
      wait_for(shared.queries_ready + from.stage, from.parity);
      const auto keys = static_cast<int>(shared.visible[from.stage][warp]);
      wait_for(shared.panel_ready + keys_at.stage, keys_at.parity);
      float scores[64];
      begin_products();
      score_block<T>(scores, k_major_descriptor(cuda::shared_address(shared.queries[from.stage])),
                     k_major_descriptor(cuda::shared_address(shared.panels[keys_at.stage])));
      commit_products();
      finish_products<0>();
      pin(scores);
      release(shared.queries_free + from.stage);
      if constexpr (scaled) scale_columns(scores, shared.scales[keys_at.stage]);
      if (is_last) release(shared.panel_free + keys_at.stage);

      if (keys < block_keys) hide_keys(scores, keys);
      float most[2], sum[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        most[half] = greatest_of_row(scores, half) * scale;
        sum[half] = cuda::row_sum(weigh_row(scores, half, scale, cuda::reference_score(most[half])));
      }
      wait_for(shared.panel_ready + values_at.stage, values_at.parity);
      if constexpr (scaled) scale_columns(scores, shared.scales[values_at.stage]);
      std::uint32_t weights[key_steps][4];
      pack_weights<T>(scores, weights);
      float out[64];
      begin_products();
      weigh_block<T>(out, weights,
                     mn_major_descriptor(cuda::shared_address(shared.panels[values_at.stage]), block_panel_bytes),
                     false);
      commit_products();
      finish_products<0>();
      pin(out);
      if (is_last) {
        release(shared.panel_free + values_at.stage);
        has_panels = false;
      }
      if (!has_turn) begin_in_turn();
      has_turn = true;
      if (first + warp < work.count)
        store_partial<T>(chunk, work.first_pair + first + warp - first_pair, out, most, sum);
    }
    if (has_panels) {
      // None of its tiles is this warpgroup's. A place is given back once for each time that it was filled.
      wait_for(shared.panel_ready + keys_at.stage, keys_at.parity);
      release(shared.panel_free + keys_at.stage);
      wait_for(shared.panel_ready + values_at.stage, values_at.parity);
      release(shared.panel_free + values_at.stage);
    }
    keys_at.next(), keys_at.next();
    values_at.next(), values_at.next();
  }
  if (!has_turn) begin_in_turn();
}

template <class T, class Stored>
__global__ void __launch_bounds__(scattered_shared<Stored>::threads, 1)
    attend_blocks(const __grid_constant__ attend_maps maps, const __grid_constant__ attend_call call,
                  const __grid_constant__ attend_chunk chunk, attend_pass pass) {
  using S = scattered_shared<Stored>;
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<S*>(memory);
  // Lists, keys and queries are older than the kernel before, which still reads what this one will write over.
  if (blockIdx.x >= pass.end_work(chunk) - pass.first_work(chunk)) {
    begin_in_turn();
    return;
  }
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

template <class T, class Stored = T>
void attend_as(const attend_call& call, const attend_maps& maps, const attend_chunk& chunk, cudaStream_t stream) {
  using S = scattered_shared<Stored>;
  cuda::allow_shared_memory(attend_blocks<T, Stored>, sizeof(S));
  for (attend_pass pass{}; pass.group < chunk.groups; ++pass.group)
    for (pass.range = 0; pass.range < chunk.ranges; ++pass.range) {
      launch_in_turn(attend_blocks<T, Stored>, static_cast<unsigned>(cuda::multiprocessors()), S::threads, sizeof(S),
                     stream, maps, call, chunk, pass);
      combine_scattered_tokens(call, chunk, pass, stream);
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

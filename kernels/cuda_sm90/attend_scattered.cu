// SPDX-License-Identifier: Apache-2.0
// Tokens whose neighbours read other blocks: block by block. A thread block has the keys and values of a block in shared
// memory, for up to 32 of the tokens that selected it; a warpgroup computes four of them at a time, 64 rows. What a token
// has of a block is stored, rounded, and a second kernel adds up the blocks of a token in ascending order.
//
// One warp brings blocks, one brings queries, three warpgroups take turns at the tiles of four tokens, whichever block these
// are of: so each has products while the others have exponentials.
#include <math_constants.h>

#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda_sm90/attend_kernels.h"

namespace msabench::cuda_sm90 {
namespace {

/// A pass over the pairs of some heads.
struct scattered_pass {
  std::int32_t number, first_head, heads;
};

struct scattered_shared {
  static constexpr int block_stages = 2, consumers = 3, query_stages = 2 * consumers;
  static constexpr int threads = 128 * (1 + consumers), producer_registers = 32, consumer_registers = 160;

  alignas(1024) unsigned char keys[block_stages][block_bytes];
  alignas(1024) unsigned char values[block_stages][block_bytes];
  alignas(1024) unsigned char queries[query_stages][query_bytes];
  block_work works[block_stages];                         ///< count 0: there are no more
  std::uint32_t visible[query_stages][warpgroup_tokens];  ///< keys of the block that a token sees
  barrier work_ready[block_stages], keys_ready[block_stages], values_ready[block_stages], block_free[block_stages];
  barrier queries_ready[query_stages], queries_free[query_stages];

  __device__ void make_barriers() {
    for (int i = 0; i < block_stages; ++i) {
      make_barrier(work_ready + i, 1);
      make_barrier(keys_ready + i, 1);
      make_barrier(values_ready + i, 1);
      make_barrier(block_free + i, consumers * 4 + 1);  // warps of consumers, and the one that brings queries
    }
    for (int i = 0; i < query_stages; ++i) {
      make_barrier(queries_ready + i, 1);
      make_barrier(queries_free + i, 4);
    }
    publish_barriers();
  }
};
static_assert(sizeof(scattered_shared) <= 227 * 1024);

using block_ring = ring_place<scattered_shared::block_stages>;
using query_ring = ring_place<scattered_shared::query_stages>;

/// The last blocks of sequences have most tokens, so works are taken from the end.
__device__ void bring_blocks(const attend_call& call, const attend_maps& maps, const attend_chunk& chunk, int pass,
                             scattered_shared& shared) {
  const int lane = threadIdx.x % 32;
  const std::uint32_t all = chunk.work_counts[pass];
  const block_work* const works = chunk.works + pass * chunk.works_of_pass;
  const auto max_blocks = static_cast<std::uint32_t>(chunk.max_blocks);
  std::uint32_t number = blockIdx.x;
  for (block_ring at;; at.next()) {
    block_work work{};
    block_source source;
    if (number < all) {
      work = works[all - 1 - number];
      source = {call, maps.rows_of_box, work.block / max_blocks, work.block % max_blocks};
    }
    std::uint32_t taken = 0;
    if (lane == 0) taken = atomicAdd(chunk.work_cursors + pass, 1u);
    wait_for(shared.block_free + at.stage, at.parity ^ 1);
    if (lane == 0) {
      shared.works[at.stage] = work;
      arrive(shared.work_ready + at.stage);
    }
    if (work.count == 0) return;
    const auto head = static_cast<std::int32_t>(work.head);
    bring_block(source, call.keys, maps.k, maps.rows_of_box, head, shared.keys[at.stage], shared.keys_ready + at.stage);
    bring_block(source, call.values, maps.v, maps.rows_of_box, head, shared.values[at.stage],
                shared.values_ready + at.stage);
    number = gridDim.x + __shfl_sync(~0u, taken, 0);
  }
}

__device__ void bring_queries(const attend_call& call, const attend_maps& maps, const attend_chunk& chunk, int pass,
                              scattered_shared& shared) {
  const int lane = threadIdx.x % 32;
  const token_pair* const pairs = chunk.pairs + pass * chunk.pairs_of_pass();
  query_ring to;
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
                   shared.queries_ready + to.stage);
    }
  }
}

/// The result of a token and a block: the sum of weighted values over the sum of weights, rounded, in the order in which
/// the lanes have it; greatest scores and sums of rows apart.
template <class T>
__device__ void store_partial(const attend_chunk& chunk, std::int64_t pair, const float (&out)[64],
                              const float (&most)[2], const float (&sum)[2]) {
  const int lane = threadIdx.x % 32;
  uint4* const to = chunk.partial_out + pair * 8 * 32 + lane;
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
    if (lane % 4 == 0) __stcs(chunk.partial_stats + pair * 16 + half * 8 + lane / 4, float2{most[half], sum[half]});
  }
}

template <class T>
__device__ void consume(const attend_call& call, const attend_chunk& chunk, int consumer, scattered_shared& shared) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const float scale = call.scale * static_cast<float>(CUDART_L2E);
  query_ring from;
  for (block_ring at;; at.next()) {
    wait_for(shared.work_ready + at.stage, at.parity);
    const block_work work = shared.works[at.stage];
    if (work.count == 0) return;
    for (std::uint32_t first = 0; first < work.count; first += warpgroup_tokens, from.next()) {
      if (from.stage % scattered_shared::consumers != consumer) continue;
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

      if (keys < block_keys) hide_keys(scores, keys);
      float most[2], sum[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        most[half] = greatest_of_row(scores, half) * scale;
        sum[half] = cuda::row_sum(weigh_row(scores, half, scale, cuda::reference_score(most[half])));
      }
      std::uint32_t weights[key_steps][4];
      pack_weights<T>(scores, weights);

      wait_for(shared.values_ready + at.stage, at.parity);
      float out[64];
      begin_products();
      weigh_block<T>(out, weights,
                     mn_major_descriptor(cuda::shared_address(shared.values[at.stage]), block_panel_bytes), false);
      commit_products();
      finish_products<0>();
      pin(out);
      if (first + warp < work.count) store_partial<T>(chunk, work.first_pair + first + warp, out, most, sum);
    }
    __syncwarp();
    if (lane == 0) arrive(shared.block_free + at.stage);
  }
}

template <class T>
__global__ void __launch_bounds__(scattered_shared::threads, 1)
    attend_blocks(const __grid_constant__ attend_maps maps, const __grid_constant__ attend_call call,
                  const __grid_constant__ attend_chunk chunk, int pass) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<scattered_shared*>(memory);
  if (blockIdx.x >= chunk.work_counts[pass]) return;
  if (threadIdx.x == 0) shared.make_barriers();
  __syncthreads();
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  if (warp < 4) {
    give_registers<scattered_shared::producer_registers>();
    if (warp == 0) bring_blocks(call, maps, chunk, pass, shared);
    if (warp == 1) bring_queries(call, maps, chunk, pass, shared);
  } else {
    take_registers<scattered_shared::consumer_registers>();
    consume<T>(call, chunk, warp / 4 - 1, shared);
  }
}

/// A warp for each token of some heads.
constexpr int combine_warps = 4;

template <class T>
__global__ void __launch_bounds__(32 * combine_warps)
    combine_blocks(const __grid_constant__ attend_call call, const __grid_constant__ attend_chunk chunk,
                   scattered_pass pass) {
  __shared__ float weights_of[combine_warps][most_listed][token_heads];
  __shared__ std::uint32_t pairs_of[combine_warps][most_listed];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4;
  auto& weights = weights_of[warp];
  auto& pairs = pairs_of[warp];
  const std::int64_t local = std::int64_t{blockIdx.x} * combine_warps + warp;
  if (local >= pass.heads * chunk.tokens_of_head()) return;
  const std::int64_t item = pass.first_head * chunk.tokens_of_head() + local, head = item / chunk.tokens_of_head();
  const listed_token token = chunk.tokens[item];
  const auto count = static_cast<int>(token.count);
  if (count == 0) return;
  if (lane < count) pairs[lane] = chunk.blocks[item * chunk.topk + lane].pair;
  __syncwarp();

  // A lane has a row, and every second block; the sums of both are added up in the order of blocks.
  const int row = lane % token_heads, parity = lane / token_heads;
  float most = -CUDART_INF_F, sum = 0;
  for (int i = parity; i < count; i += 2)
    most = fmaxf(most, __ldcg(chunk.partial_stats + std::int64_t{pairs[i]} * 16 + row).x);
  most = fmaxf(most, __shfl_xor_sync(~0u, most, token_heads));
  for (int i = parity; i < count; i += 2) {
    const float2 stats = __ldcg(chunk.partial_stats + std::int64_t{pairs[i]} * 16 + row);
    weights[i][row] = stats.y * cuda::exp2_approximately(stats.x - cuda::reference_score(most));
  }
  __syncwarp();
  for (int i = 0; i < count; ++i) sum += weights[i][row];

  float out[64] = {};
#pragma unroll 2
  for (int i = 0; i < count; ++i) {
    const uint4* const from = chunk.partial_out + std::int64_t{pairs[i]} * 8 * 32 + lane;
    uint4 parts[8];
#pragma unroll
    for (int part = 0; part < 8; ++part) parts[part] = __ldcs(from + part * 32);
    const float factors[2] = {weights[i][g], weights[i][g + 8]};
#pragma unroll
    for (int part = 0; part < 8; ++part) {
      const std::uint32_t words[4] = {parts[part].x, parts[part].y, parts[part].z, parts[part].w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float2 values =
            cuda::storage<T>::widen(reinterpret_cast<const typename cuda::storage<T>::pair&>(words[j]));
        const int first = (part % 4 * 4 + j) * 4 + part / 4 * 2;
        out[first] = __fmaf_rn(values.x, factors[part / 4], out[first]);
        out[first + 1] = __fmaf_rn(values.y, factors[part / 4], out[first + 1]);
      }
    }
  }
  const float inverses[2] = {cuda::inverse_sum(__shfl_sync(~0u, sum, g)),
                             cuda::inverse_sum(__shfl_sync(~0u, sum, g + 8))};
  write_token<T>(call, token.row, head, out, inverses);
  if (lane < call.group) write_lse(call, token.row, head, row, most, sum);
}

template <class T>
void attend_as(const attend_call& call, const attend_maps& maps, const attend_chunk& chunk, cudaStream_t stream) {
  constexpr std::size_t shared = sizeof(scattered_shared);
  cuda::allow_shared_memory(attend_blocks<T>, shared);
  for (scattered_pass pass{}; pass.number < chunk.passes; ++pass.number) {
    pass.first_head = pass.number * chunk.heads_of_pass;
    pass.heads = std::min(chunk.heads_of_pass, chunk.heads - pass.first_head);
    attend_blocks<T><<<static_cast<unsigned>(cuda::multiprocessors()), scattered_shared::threads, shared, stream>>>(
        maps, call, chunk, pass.number);
    const std::int64_t tokens = pass.heads * chunk.tokens_of_head();
    combine_blocks<T><<<static_cast<unsigned>(cuda::ceil_div(tokens, combine_warps)), 32 * combine_warps, 0, stream>>>(
        call, chunk, pass);
  }
}

}  // namespace

void attend_scattered_tokens(const attend_call& call, const attend_maps& maps, const attend_chunk& chunk,
                             cudaStream_t stream) {
  if (same_type(call.q_type, bf16_type))
    attend_as<__nv_bfloat16>(call, maps, chunk, stream);
  else
    attend_as<__half>(call, maps, chunk, stream);
}

}  // namespace msabench::cuda_sm90

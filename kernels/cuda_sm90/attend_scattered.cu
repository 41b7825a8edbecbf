// SPDX-License-Identifier: Apache-2.0
// Tokens whose neighbours read other blocks: block by block. A thread block has the keys and values of a block in
// shared memory, for up to 32 of the tokens that selected it; a warpgroup computes four of them at a time, 64 rows.
// What a token has of a block is stored, rounded, and a second kernel adds up the blocks of a token in ascending order.
//
// One warp brings blocks, one brings queries, three warpgroups take turns at the tiles of four tokens, whichever block
// these are of: so each has products while the others have exponentials.
#include <math_constants.h>

#include <algorithm>

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
  const float scale = call.scale * static_cast<float>(CUDART_L2E);
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

constexpr int combine_warps = 4, combine_blocks_resident = 4;

/// What a warp needs to add up the results of a token, of which the next one's comes meanwhile.
struct token_results {
  std::uint32_t places[most_listed];
  alignas(16) float2 stats[most_listed][token_heads];  ///< greatest score, then weight; and sum of a row
};

/// A token, as it is listed: what of it is in the lanes of a warp.
struct listed_lane {
  std::int32_t item = -1;  ///< negative: there are no more
  std::uint32_t row = 0, count = 0;
  listed_block block{};

  listed_lane() = default;
  __device__ listed_lane(const attend_chunk& chunk, std::int32_t at, std::int32_t end) {
    if (at >= end) return;
    item = at;
    row = chunk.tokens[at].row, count = chunk.tokens[at].count;
    const int lane = threadIdx.x % 32;
    if (lane < chunk.topk) block = chunk.blocks[std::int64_t{at} * chunk.topk + lane];
  }
};

/// A token and what of this pass is its.
struct token_visit {
  std::int32_t item = -1;
  std::uint32_t row = 0;
  int count = 0;
  bool has_earlier = false, has_later = false;

  token_visit() = default;
  /// Starts the copy of what the results say of their rows.
  __device__ token_visit(const attend_chunk& chunk, std::uint32_t range, const listed_lane& from, token_results& to)
      : item(from.item), row(from.row) {
    const int lane = threadIdx.x % 32;
    const bool is_block = item >= 0 && lane < static_cast<int>(from.count);
    const unsigned lanes = __ballot_sync(~0u, is_block && from.block.pass == range);
    has_earlier = __any_sync(~0u, is_block && from.block.pass < range);
    has_later = __any_sync(~0u, is_block && from.block.pass > range);
    count = __popc(lanes);
    __syncwarp();  // readers of the token before have done
    if (lanes >> lane & 1) to.places[__popc(lanes & ((1u << lane) - 1))] = from.block.place;
    __syncwarp();
    constexpr int pieces = token_heads * sizeof(float2) / 16;
    for (int i = lane; i < count * pieces; i += 32)
      cuda::copy_async(cuda::shared_address(to.stats[i / pieces]) + i % pieces * 16,
                       reinterpret_cast<const char*>(chunk.partial_stats + std::int64_t{to.places[i / pieces]} * 16) +
                           i % pieces * 16,
                       true);
    cuda::commit_copies();
  }
};

/// Adds two values to each of four pairs of columns of a row.
template <class T>
__device__ void add_words(float (&out)[64], const uint4& four, int part, float factor) {
  const std::uint32_t words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 values = cuda::storage<T>::widen(reinterpret_cast<const typename cuda::storage<T>::pair&>(words[i]));
    const int first = (part % 4 * 4 + i) * 4 + part / 4 * 2;
    out[first] = __fmaf_rn(values.x, factor, out[first]);
    out[first + 1] = __fmaf_rn(values.y, factor, out[first + 1]);
  }
}

/// What write_token wrote of a token.
__device__ inline void read_token(const attend_call& call, std::int64_t row, std::int64_t head, uint4 (&parts)[8]) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int part = 0; part < 8; ++part) {
    const int r = g + part / 4 * 8;
    const char* const from =
        call.out + (row * call.out_row_stride + (head * call.group + r) * call.out_head_stride) * 2;
    parts[part] = r < call.group ? __ldcg(reinterpret_cast<const uint4*>(from + (part % 4 * 4 + t) * 16)) : uint4{};
  }
}

/// Adds up what a token has of the blocks of a pass, in ascending order. Between passes, what it has is the output as it
/// would be without later blocks.
template <class T>
__device__ void combine_token(const attend_call& call, const attend_chunk& chunk, const token_visit& visit,
                              token_results& results) {
  const int lane = threadIdx.x % 32, g = lane / 4, row = lane % token_heads, parity = lane / token_heads;
  const auto tokens = static_cast<std::int32_t>(chunk.tokens_of_head());
  const std::int32_t head = visit.item / tokens, local = visit.item % tokens;
  float2* const state_stats = chunk.state_stats + std::int64_t{local} * token_heads + row;
  float2 before{-CUDART_INF_F, 0};
  uint4 earlier[8];
  if (visit.has_earlier) {
    before = *state_stats;
    read_token(call, visit.row, head, earlier);
  }
  // A lane has a row, and every second block; the sums of both are added up in the order of blocks.
  float most = before.x;
  for (int i = parity; i < visit.count; i += 2) most = fmaxf(most, results.stats[i][row].x);
  most = fmaxf(most, __shfl_xor_sync(~0u, most, token_heads));
  const float reference = cuda::reference_score(most);
  for (int i = parity; i < visit.count; i += 2) {
    const float2 stats = results.stats[i][row];
    results.stats[i][row].x = stats.y * cuda::exp2_approximately(stats.x - reference);
  }
  __syncwarp();
  float out[64] = {}, sum = 0;
  if (visit.has_earlier) {
    sum = before.y * cuda::exp2_approximately(before.x - reference);
    const float weights[2] = {__shfl_sync(~0u, sum, g), __shfl_sync(~0u, sum, g + 8)};
#pragma unroll
    for (int part = 0; part < 8; ++part) {
      std::uint32_t words[4] = {earlier[part].x, earlier[part].y, earlier[part].z, earlier[part].w};
      transpose_words(words);
      add_words<T>(out, {words[0], words[1], words[2], words[3]}, part, weights[part / 4]);
    }
  }
  for (int i = 0; i < visit.count; ++i) sum += results.stats[i][row].x;

#pragma unroll 2
  for (int i = 0; i < visit.count; ++i) {
    const uint4* const from = chunk.partial_out + std::int64_t{results.places[i]} * 8 * 32 + lane;
    uint4 parts[8];
#pragma unroll
    for (int part = 0; part < 8; ++part) parts[part] = __ldcs(from + part * 32);
    const float factors[2] = {results.stats[i][g].x, results.stats[i][g + 8].x};
#pragma unroll
    for (int part = 0; part < 8; ++part) add_words<T>(out, parts[part], part, factors[part / 4]);
  }
  const float inverse = cuda::inverse_sum(sum);
  write_token<T>(call, visit.row, head, out, {__shfl_sync(~0u, inverse, g), __shfl_sync(~0u, inverse, g + 8)});
  if (visit.has_later) {
    if (lane < token_heads) *state_stats = {most, sum};
  } else if (lane < call.group) {
    write_lse(call, visit.row, head, row, most, sum);
  }
}

/// A warp has every so manieth token of the heads of a group.
template <class T>
__global__ void __launch_bounds__(32 * combine_warps, combine_blocks_resident)
    combine_blocks(const __grid_constant__ attend_call call, const __grid_constant__ attend_chunk chunk,
                   attend_pass pass) {
  __shared__ token_results shared[combine_warps][2];
  begin_in_turn();
  if (pass.first_work(chunk) == pass.end_work(chunk)) return;
  auto& results = shared[threadIdx.x / 32];
  const auto range = static_cast<std::uint32_t>(pass.range);
  const auto tokens = static_cast<std::int32_t>(chunk.tokens_of_head());
  const auto step = static_cast<std::int32_t>(gridDim.x) * combine_warps;
  const std::int32_t end = min((pass.group + 1) * chunk.heads_of_group, chunk.heads) * tokens;
  std::int32_t at = pass.group * chunk.heads_of_group * tokens +
                    static_cast<std::int32_t>(blockIdx.x * combine_warps + threadIdx.x / 32);
  // While one token is added up, the results of the next are looked up, and the one after that is read.
  token_visit visit(chunk, range, {chunk, at, end}, results[0]);
  listed_lane next(chunk, at + step, end);
  for (int buffer = 0; visit.item >= 0; buffer ^= 1) {
    at += step;
    const token_visit following(chunk, range, next, results[buffer ^ 1]);
    next = {chunk, at + step, end};
    cuda::wait_copies<1>();
    __syncwarp();
    if (visit.count > 0) combine_token<T>(call, chunk, visit, results[buffer]);
    visit = following;
  }
}

template <class T, class Stored = T>
void attend_as(const attend_call& call, const attend_maps& maps, const attend_chunk& chunk, cudaStream_t stream) {
  using S = scattered_shared<Stored>;
  cuda::allow_shared_memory(attend_blocks<T, Stored>, sizeof(S));
  const std::int64_t tokens = chunk.heads_of_group * chunk.tokens_of_head();
  const unsigned combine_grid = cuda::grid_blocks(tokens, combine_warps, combine_blocks_resident);
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

// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda_sm90/attend_lists.cuh"

#include <math_constants.h>

#include <algorithm>
#include <cmath>

#include "kernels/common/check.h"
#include "kernels/cuda/attention_output.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/workspace.cuh"
#include "kernels/cuda_sm90/overlap.cuh"

namespace msabench::cuda_sm90 {
namespace {

using cuda::ceil_div;

/// Bytes that results of pairs may take. Tests make it small, so that small problems go
/// in ranges.
#ifndef MSABENCH_ATTEND_PARTIAL_BYTES
#define MSABENCH_ATTEND_PARTIAL_BYTES 240e6
#endif
constexpr double most_partial_bytes = MSABENCH_ATTEND_PARTIAL_BYTES;
constexpr double pair_bytes = 16 * (128 * sizeof(std::uint16_t) + sizeof(float2));
/// Of a token between ranges; in the memory of its output wait twice as many of its sums.
constexpr double state_bytes = 16 * (128 * sizeof(std::uint8_t) + sizeof(float2));
constexpr double moved_state_bytes = 2 * (state_bytes + 16 * 128 * sizeof(std::uint16_t));  // there and back
constexpr double key_bytes = 2 * 128 * sizeof(std::uint16_t);                               // and its values
/// Tokens of a chunk, at the most: enough that even blocks of a long sequence are read for many of them.
constexpr std::int64_t most_tokens = 8192;

/// Tokens of a chunk. Where the results of a head don't fit, either what tokens have is read again between ranges of
/// blocks, or fewer tokens read the blocks again: whatever moves less.
std::int64_t chunk_tokens(const msabench_problem& p) {
  const std::int64_t tokens = std::clamp<std::int64_t>(p.total_q, 1, most_tokens);
  const double chunks = std::ceil(static_cast<double>(tokens * p.topk) * pair_bytes / most_partial_bytes);
  const double keys = static_cast<double>(p.batch) * static_cast<double>(p.max_kv_len);
  if (keys * key_bytes > static_cast<double>(tokens) * moved_state_bytes) return tokens;
  return ceil_div(ceil_div(tokens, static_cast<std::int64_t>(chunks)), tile_tokens) * tile_tokens;
}

constexpr unsigned all_lanes = ~0u;

/// A thread block for each tile and head, a warp for each token.
__global__ void __launch_bounds__(32 * tile_tokens) list_tokens(attend_call call, attend_chunk chunk) {
  __shared__ std::int32_t blocks[tile_tokens][most_listed];
  __shared__ std::uint32_t counts[tile_tokens], firsts[tile_tokens], tile_place;
  cuda::let_next_begin();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const std::int64_t head = blockIdx.x / chunk.tiles, tile_number = blockIdx.x % chunk.tiles;
  const cuda::token_tile tile = cuda::token_tile_at(call.rows, chunk.first_tile + tile_number, tile_tokens);
  const std::int64_t row = tile.first + warp, item = (head * chunk.tiles + tile_number) * tile_tokens + warp;
  std::uint32_t count = 0;
  if (warp < tile.tokens) {
    const std::int64_t visible = visible_blocks({0, 0, tile.first_limit - 1 + warp}, call.block);
    count = cuda::list_blocks(call.ids + row * call.id_row_stride + head * call.id_head_stride, call.topk, visible,
                              blocks[warp]);
    for (int r = 0; r < call.group && count == 0; ++r) {
      cuda::token_tile own = tile;
      own.first = row;
      const cuda::row_output to(call, own, head, r);
      for (int column = lane * 2; column < call.d; column += 64) to.pair(call, column, 0, 0, 0);
      if (lane == 0) to.lse(call, -CUDART_INF_F, 0);
    }
  }
  if (lane == 0) counts[warp] = count;
  __syncthreads();

  // How many blocks of each token are below this lane's, and which tokens have it too.
  const bool has_block = lane < static_cast<int>(count);
  const std::int32_t block = has_block ? blocks[warp][lane] : 0;
  std::uint32_t below[tile_tokens], readers = 0, pairs = 0;
#pragma unroll
  for (int other = 0; other < tile_tokens; ++other) {
    const std::uint32_t end = counts[other];
    std::uint32_t place = 0;
#pragma unroll
    for (std::uint32_t step = most_listed; step > 0; step /= 2)
      if (place + step <= end && blocks[other][place + step - 1] < block) place += step;
    below[other] = place;
    if (has_block && place < end && blocks[other][place] == block) readers |= 1u << other;
    pairs += end;
  }
  const bool is_first = has_block && (readers & ((1u << warp) - 1)) == 0;
  const unsigned first_lanes = __ballot_sync(all_lanes, is_first);
  if (lane == 0) firsts[warp] = first_lanes;
  __syncthreads();
  std::uint32_t shared = 0, place = 0;
#pragma unroll
  for (int other = 0; other < tile_tokens; ++other) {
    shared += __popc(firsts[other]);
    // All 32 of a token can be below.
    place += __popc(firsts[other] & static_cast<std::uint32_t>((std::uint64_t{1} << below[other]) - 1));
  }

  const bool together = pairs > 0 && (chunk.tokens_alone || reads_together(shared, pairs));
  if (together) {
    if (threadIdx.x == 0) {
      tile_place = atomicAdd(chunk.tile_counts, 1u);
      shared_tile to{};
      to.first = static_cast<std::uint32_t>(tile.first);
      to.tokens = static_cast<std::uint32_t>(tile.tokens);
      to.head = static_cast<std::uint32_t>(head);
      to.sequence = static_cast<std::uint32_t>(tile.sequence);
      to.blocks = shared;
      for (int token = 0; token < tile_tokens; ++token) to.limits[token] = counts[token] > 0 ? tile.limit(token) : 0;
      chunk.shared_tiles[tile_place] = to;
    }
    __syncthreads();
    if (is_first)
      chunk.shared_blocks[tile_place * chunk.blocks_of_tile + place] = {static_cast<std::uint32_t>(block), readers};
  } else if (has_block) {
    const std::int64_t number = tile.sequence * chunk.max_blocks + block;
    chunk.blocks[item * chunk.topk + lane] = {static_cast<std::uint32_t>(number),
                                              atomicAdd(chunk.counts + head * chunk.blocks_of_head() + number, 1u)};
  }
  // Where a token has no block something is read too, before it is known how many it has.
  if (lane < chunk.topk && (together || !has_block)) chunk.blocks[item * chunk.topk + lane] = {};
  if (lane == 0)
    chunk.tokens[item] = {static_cast<std::uint32_t>(row), warp < tile.tokens ? tile.limit(warp) : 0,
                          together ? 0 : count, 0};
}

/// From counts to first pairs, and to works. A thread block for each head; a thread has four neighbouring blocks of a
/// strip.
constexpr int scan_threads = 1024, scan_blocks = 4;

__device__ uint2 operator+(uint2 a, uint2 b) { return {a.x + b.x, a.y + b.y}; }

/// Sums over the threads before this one, and over all.
__device__ uint2 scan(uint2 own, uint2& all) {
  __shared__ uint2 warp_sums[scan_threads / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const auto scan_warp = [lane](uint2 value) {
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const uint2 before{__shfl_up_sync(all_lanes, value.x, step), __shfl_up_sync(all_lanes, value.y, step)};
      if (lane >= step) value = value + before;
    }
    return value;
  };
  const uint2 sum = scan_warp(own);
  __syncthreads();  // readers of the strip before have done
  if (lane == 31) warp_sums[warp] = sum;
  __syncthreads();
  const uint2 warps = scan_warp(warp_sums[lane]);
  __syncthreads();
  if (warp == 0) warp_sums[lane] = warps;
  __syncthreads();
  all = warp_sums[scan_threads / 32 - 1];
  const uint2 before = warp > 0 ? warp_sums[warp - 1] : uint2{};
  return {before.x + sum.x - own.x, before.y + sum.y - own.y};
}

/// `visit(block, count, before)` of each block of the head, by one thread; before: pairs and works of the blocks before
/// it.
template <class Visit>
__device__ uint2 walk_counts(const std::uint32_t* counts, std::int64_t blocks, uint2 before, Visit visit) {
  for (std::int64_t strip = 0; strip < blocks; strip += scan_threads * scan_blocks) {
    const std::int64_t first = strip + threadIdx.x * scan_blocks;
    std::uint32_t own[scan_blocks];
    uint2 sum{};
#pragma unroll
    for (int i = 0; i < scan_blocks; ++i) {
      own[i] = first + i < blocks ? counts[first + i] : 0;
      sum = sum + uint2{own[i], (own[i] + work_tokens - 1) / work_tokens};
    }
    uint2 all;
    uint2 at = before + scan(sum, all);
#pragma unroll
    for (int i = 0; i < scan_blocks; ++i) {
      if (first + i < blocks) visit(first + i, own[i], at);
      at = at + uint2{own[i], (own[i] + work_tokens - 1) / work_tokens};
    }
    before = before + all;
  }
  return before;
}

/// The last boundary of blocks that is not behind `most`. By all threads.
__device__ std::uint32_t boundary(const std::uint32_t* begins, std::int64_t blocks, std::uint32_t all,
                                  std::uint32_t most) {
  __shared__ std::uint32_t greatest;
  if (all <= most) return all;
  __syncthreads();  // readers of the boundary before have done
  if (threadIdx.x == 0) greatest = 0;
  __syncthreads();
  std::uint32_t found = 0;
  for (std::int64_t b = threadIdx.x; b < blocks; b += scan_threads)
    if (begins[b] <= most) found = max(found, begins[b]);
  found = __reduce_max_sync(all_lanes, found);
  if (threadIdx.x % 32 == 0) atomicMax(&greatest, found);
  __syncthreads();
  return greatest;
}

__global__ void __launch_bounds__(scan_threads) list_works(attend_chunk chunk) {
  __shared__ std::uint32_t first_work;
  begin_in_turn();
  const auto head = static_cast<std::int32_t>(blockIdx.x), group = head / chunk.heads_of_group;
  const std::int64_t blocks = chunk.blocks_of_head();
  const std::uint32_t* const counts = chunk.counts + head * blocks;
  std::uint32_t* const begins = chunk.begins + head * blocks;
  const auto first_pair = static_cast<std::uint32_t>(head % chunk.heads_of_group * chunk.pairs_of_head);
  const uint2 all = walk_counts(counts, blocks, {first_pair, 0},
                                [&](std::int64_t b, std::uint32_t, uint2 before) { begins[b] = before.x; });
  std::uint32_t* const first_works = chunk.first_works + group * (chunk.ranges + 1);
  std::uint32_t* const first_pairs = chunk.first_pairs + group * (chunk.ranges + 1);
  // Heads of a group come in any order. A head with ranges is alone.
  if (threadIdx.x == 0) first_work = chunk.ranges == 1 ? atomicAdd(first_works + 1, all.y) : 0;
  __syncthreads();
  if (chunk.ranges > 1)
    for (std::uint32_t range = 1, from = 0; range <= static_cast<std::uint32_t>(chunk.ranges); ++range) {
      from = boundary(begins, blocks, all.x, from + static_cast<std::uint32_t>(chunk.pairs_of_pass));
      if (threadIdx.x == 0) first_pairs[range] = from;
    }
  __syncthreads();
  block_work* const works = chunk.works + group * chunk.works_of_group;
  walk_counts(counts, blocks, {first_pair, first_work}, [&](std::int64_t b, std::uint32_t count, uint2 before) {
    if (count == 0) return;
    for (std::uint32_t i = 0; i < count; i += work_tokens)
      works[before.y + i / work_tokens] = {static_cast<std::uint32_t>(b), static_cast<std::uint32_t>(head),
                                           before.x + i, min(count - i, static_cast<std::uint32_t>(work_tokens))};
    if (chunk.ranges == 1) return;
    const std::uint32_t end = before.x + count, works_end = before.y + (count + work_tokens - 1) / work_tokens;
    for (std::int32_t range = 1; range <= chunk.ranges; ++range)
      if (first_pairs[range] == end) first_works[range] = works_end;
  });
}

/// Pairs to their blocks.
__global__ void __launch_bounds__(256) place_pairs(attend_chunk chunk, std::int32_t block_keys) {
  begin_in_turn();
  const std::int64_t i = std::int64_t{blockIdx.x} * 256 + threadIdx.x, item = i / chunk.topk;
  if (item >= chunk.heads * chunk.tokens_of_head()) return;
  const listed_token token = chunk.tokens[item];
  if (i % chunk.topk >= token.count) return;
  const std::int64_t head = item / chunk.tokens_of_head(), group = head / chunk.heads_of_group;
  const listed_block entry = chunk.blocks[i];
  const std::uint32_t begin = chunk.begins[head * chunk.blocks_of_head() + entry.pass];
  const std::uint32_t pair = begin + entry.place;
  const std::uint32_t* const first_pairs = chunk.first_pairs + group * (chunk.ranges + 1);
  std::uint32_t range = 0;
  while (range + 1 < static_cast<std::uint32_t>(chunk.ranges) && pair >= first_pairs[range + 1]) ++range;
  chunk.blocks[i] = {range, pair - first_pairs[range]};
  const std::uint32_t first_key = static_cast<std::uint32_t>(entry.pass % chunk.max_blocks) * block_keys;
  chunk.pairs[group * chunk.pairs_of_group() + pair] = {
      token.row, min(token.limit - first_key, static_cast<std::uint32_t>(block_keys))};
}

}  // namespace

attend_chunk lay_out_attend_chunk(const msabench_problem& p, void* memory, double& bytes) {
  attend_chunk chunk{};
  chunk.sequences = p.batch;
  chunk.max_blocks = max_blocks(p);
  chunk.heads = p.hkv;
  chunk.topk = p.topk;
  chunk.tokens_alone = stores_no_partials(p);
  const std::int64_t all_tiles = std::max<std::int64_t>(1, cuda::token_tile_bound(p.total_q, p.batch, tile_tokens));
  const std::int64_t tokens = chunk_tokens(p);
  chunk.tiles = p.total_q <= tokens ? all_tiles : ceil_div(tokens, tile_tokens);
  chunk.pairs_of_head = tokens * chunk.topk;
  const double head_bytes = static_cast<double>(chunk.pairs_of_head) * pair_bytes;
  chunk.heads_of_group =
      static_cast<std::int32_t>(std::clamp(most_partial_bytes / head_bytes, 1.0, static_cast<double>(p.hkv)));
  chunk.groups = static_cast<std::int32_t>(ceil_div(p.hkv, chunk.heads_of_group));
  chunk.ranges = 1;
  chunk.pairs_of_pass = chunk.pairs_of_group();
  if (head_bytes > most_partial_bytes) {
    const double room = most_partial_bytes - static_cast<double>(chunk.tokens_of_head()) * state_bytes;
    chunk.pairs_of_pass = std::max(static_cast<std::int64_t>(room / pair_bytes), 2 * tokens);
    // A block has all tokens at the most.
    chunk.ranges = static_cast<std::int32_t>(ceil_div(chunk.pairs_of_head, chunk.pairs_of_pass - tokens));
  }
  chunk.works_of_group = chunk.pairs_of_group() / work_tokens +
                         std::min(chunk.pairs_of_group(), chunk.heads_of_group * chunk.blocks_of_head());
  chunk.blocks_of_tile = most_shared_blocks(chunk.topk);

  cuda::workspace_cutter cutter(memory);
  const auto blocks = static_cast<double>(chunk.heads * chunk.blocks_of_head());
  const auto listed = static_cast<double>(chunk.heads * chunk.tokens_of_head());
  const auto shared = static_cast<double>(chunk.heads * chunk.tiles);
  const auto pairs = static_cast<double>(chunk.groups * chunk.pairs_of_group());
  const auto works = static_cast<double>(chunk.groups * chunk.works_of_group);
  const auto results = static_cast<double>(chunk.pairs_of_pass);
  const double states = chunk.ranges == 1 ? 0 : static_cast<double>(chunk.tokens_of_head());
  chunk.counts = cutter.take<std::uint32_t>(blocks);
  chunk.first_works = cutter.take<std::uint32_t>(chunk.groups * (chunk.ranges + 1.0));
  chunk.work_cursors = cutter.take<std::uint32_t>(static_cast<double>(chunk.groups * chunk.ranges));
  chunk.tile_counts = cutter.take<std::uint32_t>(2);
  chunk.first_pairs = cutter.take<std::uint32_t>(chunk.groups * (chunk.ranges + 1.0));
  chunk.begins = cutter.take<std::uint32_t>(blocks);
  chunk.tokens = cutter.take<listed_token>(listed);
  chunk.blocks = cutter.take<listed_block>(listed * chunk.topk);
  chunk.pairs = cutter.take<token_pair>(pairs);
  chunk.works = cutter.take<block_work>(works);
  chunk.shared_tiles = cutter.take<shared_tile>(shared);
  chunk.shared_blocks = cutter.take<shared_block>(shared * static_cast<double>(chunk.blocks_of_tile));
  chunk.partial_out = cutter.take<uint4>(results * 8 * 32);
  chunk.partial_stats = cutter.take<float2>(results * 16);
  chunk.state_stats = cutter.take<float2>(states * 16);
  chunk.state_low = cutter.take<uint4>(states * 4 * 32);
  bytes = cutter.bytes();
  return chunk;
}

void list_attend_work(const attend_call& call, const attend_chunk& chunk, cudaStream_t stream) {
  cudaMemsetAsync(chunk.counts, 0, reinterpret_cast<char*>(chunk.begins) - reinterpret_cast<char*>(chunk.counts),
                  stream);
  list_tokens<<<static_cast<unsigned>(chunk.heads * chunk.tiles), 32 * tile_tokens, 0, stream>>>(call, chunk);
  launch_in_turn(list_works, static_cast<unsigned>(chunk.heads), scan_threads, 0, stream, chunk);
  const std::int64_t entries = chunk.heads * chunk.tokens_of_head() * chunk.topk;
  launch_in_turn(place_pairs, static_cast<unsigned>(ceil_div(entries, 256)), 256, 0, stream, chunk, call.block);
}

}  // namespace msabench::cuda_sm90

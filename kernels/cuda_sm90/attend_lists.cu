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

/// Bytes that results of pairs may take. Tests make it small, so that small problems go in passes.
#ifndef MSABENCH_ATTEND_PARTIAL_BYTES
#define MSABENCH_ATTEND_PARTIAL_BYTES 224e6
#endif
constexpr double most_partial_bytes = MSABENCH_ATTEND_PARTIAL_BYTES;
constexpr double pair_bytes = sizeof(pair_result);
constexpr double token_bytes_between = 2 * pair_bytes;         // written and read
constexpr double key_bytes = 2 * 128 * sizeof(std::uint16_t);  // and its values
/// Tokens of a chunk, at the most: enough that even blocks of a long sequence are read for many of them.
constexpr std::int64_t most_tokens = 8192;

/// How the pairs of a chunk are divided, so that results of one pass are read while the next one writes its own. Either
/// the sums of tokens have to wait between ranges of blocks, or fewer tokens read the blocks again: whatever moves less.
void divide(attend_chunk& chunk, const msabench_problem& p, std::int64_t tokens) {
  const std::int64_t head_pairs = tokens * p.topk;
  const auto fitting = static_cast<std::int64_t>(most_partial_bytes / pair_bytes);
  chunk.all_pairs = p.hkv * head_pairs;
  chunk.segment_tiles = chunk.tiles;
  chunk.segments = chunk.ranges = 1;
  chunk.room = chunk.pairs_of_pass = chunk.all_pairs;
  if (chunk.room <= fitting) return;
  const auto set_room = [&](std::int64_t pairs) {
    chunk.room = pairs;
    chunk.pairs_of_pass = pairs * 6 / 10;
  };
  set_room(fitting);
  if (head_pairs <= chunk.pairs_of_pass) return;
  const double keys = static_cast<double>(p.batch) * static_cast<double>(p.max_kv_len);
  const std::int64_t fitting_tiles = chunk.pairs_of_pass / (tile_tokens * p.topk);
  if (fitting_tiles > 0 && keys * key_bytes <= static_cast<double>(tokens) * token_bytes_between) {
    chunk.segments = ceil_div(chunk.tiles, std::min(fitting_tiles, chunk.tiles));
    chunk.segment_tiles = ceil_div(chunk.tiles, chunk.segments);
    return;
  }
  // A block has all tokens at the most.
  set_room(std::max(fitting - tokens, 4 * tokens));
  chunk.ranges = static_cast<std::int32_t>(ceil_div(head_pairs, chunk.pairs_of_pass - tokens));
}

constexpr unsigned all_lanes = ~0u;

/// A thread block for each tile and head, a warp for each token.
__global__ void __launch_bounds__(32 * tile_tokens) list_tokens(attend_call call, attend_chunk chunk) {
  __shared__ std::int32_t blocks[tile_tokens][most_listed];
  __shared__ std::uint32_t counts[tile_tokens], firsts[tile_tokens], tile_place;
  cuda::let_next_begin();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const std::int64_t head = blockIdx.x / chunk.tiles, tile_number = blockIdx.x % chunk.tiles;
  const std::int64_t stream = head * chunk.segments + tile_number / chunk.segment_tiles;
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

  const bool together = pairs > 0 && reads_together(shared, pairs);
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
  } else {
    if (threadIdx.x == 0 && pairs > 0) atomicAdd(chunk.stream_pairs + stream, pairs);
    if (has_block) {
      const std::int64_t number = tile.sequence * chunk.max_blocks + block;
      std::uint32_t* const readers_of_block = chunk.counts + stream * chunk.blocks_of_stream() + number;
      chunk.blocks[item * chunk.topk + lane] = {static_cast<std::uint32_t>(number), atomicAdd(readers_of_block, 1u)};
    }
  }
  if (lane == 0)
    chunk.tokens[item] = {static_cast<std::uint32_t>(row), warp < tile.tokens ? tile.limit(warp) : 0,
                          together ? 0 : count, 0};
}

/// From counts to first pairs, and to works. A thread block for each stream; a thread has four neighbouring blocks of
/// a strip.
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

/// `visit(block, count, before)` of each block of the stream, by one thread; before: pairs and works of the blocks before
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

/// What the streams before this one have, in all threads of a warp.
template <class Value>
__device__ std::uint32_t sum_before(std::int64_t stream, Value value) {
  std::uint32_t sum = 0;
  for (std::int64_t s = threadIdx.x % 32; s < stream; s += 32) sum += value(s);
  return __reduce_add_sync(all_lanes, sum);
}

__global__ void __launch_bounds__(scan_threads) list_works(attend_chunk chunk) {
  extern __shared__ std::uint32_t first_works[];  // [ranges + 1]
  __shared__ std::uint32_t first_work;
  std::uint32_t* const first_pairs = first_works + chunk.ranges + 1;  // [ranges + 1]
  begin_in_turn();
  const auto stream = static_cast<std::int64_t>(blockIdx.x);
  const std::int64_t blocks = chunk.blocks_of_stream();
  const std::uint32_t* const counts = chunk.counts + stream * blocks;
  std::uint32_t* const begins = chunk.begins + stream * blocks;
  const std::uint32_t first_pair = sum_before(stream, [&](std::int64_t s) { return chunk.stream_pairs[s]; });
  const uint2 all = walk_counts(counts, blocks, {first_pair, 0},
                                [&](std::int64_t b, std::uint32_t, uint2 before) { begins[b] = before.x; });
  if (threadIdx.x == 0) atomicExch(chunk.stream_works + stream, all.y + 1);
  if (threadIdx.x < 32) {
    // Thread blocks with smaller numbers have begun.
    const std::uint32_t before = sum_before(stream, [&](std::int64_t s) {
      std::uint32_t known = 0;
      while ((known = atomicAdd(chunk.stream_works + s, 0u)) == 0) {
      }
      return known - 1;
    });
    if (threadIdx.x == 0) {
      first_work = before;
      if (stream + 1 == chunk.streams()) *chunk.work_count = before + all.y;
    }
  }
  __syncthreads();
  std::uint32_t from = first_pair;
  for (std::int32_t range = 0; range <= chunk.ranges; ++range) {
    if (range > 0)
      from = chunk.ranges == 1
                 ? all.x
                 : boundary(begins, blocks, all.x, from + static_cast<std::uint32_t>(chunk.pairs_of_pass));
    if (threadIdx.x == 0) first_pairs[range] = from, first_works[range] = first_work + all.y;
  }
  __syncthreads();
  walk_counts(counts, blocks, {first_pair, first_work}, [&](std::int64_t b, std::uint32_t count, uint2 before) {
    if (count == 0) return;
    std::int32_t range = 0;
    while (before.x >= first_pairs[range + 1]) ++range;
    if (before.x == first_pairs[range]) first_works[range] = before.y;
    const auto pass = static_cast<std::uint32_t>(stream * chunk.ranges + range);
    for (std::uint32_t i = 0; i < count; i += work_tokens)
      chunk.works[before.y + i / work_tokens] = {static_cast<std::uint32_t>(b), pass, before.x + i,
                                                 min(count - i, static_cast<std::uint32_t>(work_tokens))};
  });
  __syncthreads();
  for (std::int32_t range = threadIdx.x; range < chunk.ranges; range += scan_threads)
    chunk.passes[stream * chunk.ranges + range] = {first_pairs[range], first_pairs[range + 1],
                                                   first_works[range + 1] - first_works[range], 0};
}

/// Pairs to their blocks.
__global__ void __launch_bounds__(256) place_pairs(attend_chunk chunk, std::int32_t block_keys) {
  begin_in_turn();
  const std::int64_t i = std::int64_t{blockIdx.x} * 256 + threadIdx.x, item = i / chunk.topk;
  if (item >= chunk.heads * chunk.tokens_of_head()) return;
  const listed_token token = chunk.tokens[item];
  if (i % chunk.topk >= token.count) {
    chunk.blocks[i].number = no_pair;
    return;
  }
  const std::int64_t head = item / chunk.tokens_of_head(), tile = item % chunk.tokens_of_head() / tile_tokens;
  const std::int64_t stream = head * chunk.segments + tile / chunk.segment_tiles;
  const listed_block entry = chunk.blocks[i];
  const std::uint32_t pair = chunk.begins[stream * chunk.blocks_of_stream() + entry.number] + entry.place;
  chunk.blocks[i].number = pair;
  const std::uint32_t first_key = static_cast<std::uint32_t>(entry.number % chunk.max_blocks) * block_keys;
  chunk.pairs[pair] = {token.row, min(token.limit - first_key, static_cast<std::uint32_t>(block_keys))};
}

}  // namespace

attend_chunk lay_out_attend_chunk(const msabench_problem& p, void* memory, double& bytes) {
  attend_chunk chunk{};
  chunk.sequences = p.batch;
  chunk.max_blocks = max_blocks(p);
  chunk.heads = p.hkv;
  chunk.topk = p.topk;
  const std::int64_t all_tiles = std::max<std::int64_t>(1, cuda::token_tile_bound(p.total_q, p.batch, tile_tokens));
  const std::int64_t tokens = std::clamp<std::int64_t>(p.total_q, 1, most_tokens);
  chunk.tiles = p.total_q <= tokens ? all_tiles : ceil_div(tokens, tile_tokens);
  divide(chunk, p, tokens);
  chunk.all_works =
      chunk.all_pairs / work_tokens + std::min(chunk.all_pairs, chunk.streams() * chunk.blocks_of_stream());
  chunk.blocks_of_tile = most_shared_blocks(chunk.topk);
  chunk.unit_tokens = std::clamp(unit_pairs / chunk.topk, 1, tile_tokens);

  cuda::workspace_cutter cutter(memory);
  const auto blocks = static_cast<double>(chunk.streams() * chunk.blocks_of_stream());
  const auto streams = static_cast<double>(chunk.streams()), passes = static_cast<double>(chunk.pass_count());
  const auto listed = static_cast<double>(chunk.heads * chunk.tokens_of_head());
  const auto shared = static_cast<double>(chunk.heads * chunk.tiles);
  const auto results = static_cast<double>(chunk.room);
  chunk.counts = cutter.take<std::uint32_t>(blocks);
  chunk.stream_pairs = cutter.take<std::uint32_t>(streams);
  chunk.stream_works = cutter.take<std::uint32_t>(streams);
  chunk.tickets = cutter.take<std::uint32_t>(2);
  chunk.works_done = cutter.take<std::uint32_t>(passes);
  chunk.units_done = cutter.take<std::uint32_t>(passes);
  chunk.tile_counts = cutter.take<std::uint32_t>(2);
  chunk.work_count = cutter.take<std::uint32_t>(1);
  chunk.begins = cutter.take<std::uint32_t>(blocks);
  chunk.passes = cutter.take<pass_extent>(passes);
  chunk.tokens = cutter.take<listed_token>(listed);
  chunk.blocks = cutter.take<listed_block>(listed * chunk.topk);
  chunk.pairs = cutter.take<token_pair>(static_cast<double>(chunk.all_pairs));
  chunk.works = cutter.take<block_work>(static_cast<double>(chunk.all_works));
  chunk.shared_tiles = cutter.take<shared_tile>(shared);
  chunk.shared_blocks = cutter.take<shared_block>(shared * static_cast<double>(chunk.blocks_of_tile));
  chunk.results = cutter.take<pair_result>(results);
  chunk.states = cutter.take<pair_result>(chunk.ranges == 1 ? 0 : static_cast<double>(chunk.tokens_of_head()));
  bytes = cutter.bytes();
  return chunk;
}

void list_attend_work(const attend_call& call, const attend_chunk& chunk, cudaStream_t stream) {
  cudaMemsetAsync(chunk.counts, 0, reinterpret_cast<char*>(chunk.work_count) - reinterpret_cast<char*>(chunk.counts),
                  stream);
  list_tokens<<<static_cast<unsigned>(chunk.heads * chunk.tiles), 32 * tile_tokens, 0, stream>>>(call, chunk);
  const std::size_t shared = 2 * (chunk.ranges + std::size_t{1}) * sizeof(std::uint32_t);
  launch_in_turn(list_works, static_cast<unsigned>(chunk.streams()), scan_threads, shared, stream, chunk);
  const std::int64_t entries = chunk.heads * chunk.tokens_of_head() * chunk.topk;
  launch_in_turn(place_pairs, static_cast<unsigned>(ceil_div(entries, 256)), 256, 0, stream, chunk, call.block);
}

}  // namespace msabench::cuda_sm90

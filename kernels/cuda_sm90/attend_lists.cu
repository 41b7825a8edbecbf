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

/// Bytes that sums of tokens may take. Tests make it small, so that small problems go in chunks.
#ifndef MSABENCH_ATTEND_SUM_BYTES
#define MSABENCH_ATTEND_SUM_BYTES 224'000'000
#endif
constexpr std::int64_t most_sum_bytes = MSABENCH_ATTEND_SUM_BYTES;
/// Tokens of a chunk, at the most: enough that even blocks of a long sequence are read for many of them.
constexpr std::int64_t most_tokens = 8192;

std::int64_t sum_bytes(const msabench_problem& p) {
  return same_type(p.q, bf16_type) ? sizeof(token_sums<__nv_bfloat16>) : sizeof(token_sums<__half>);
}

/// Whole tiles, and chunks of about the same size.
std::int64_t chunk_tokens(const msabench_problem& p) {
  const std::int64_t fitting = most_sum_bytes / (p.hkv * sum_bytes(p)) / tile_tokens * tile_tokens;
  const std::int64_t most = std::clamp<std::int64_t>(fitting, tile_tokens, most_tokens);
  const std::int64_t all = std::max<std::int64_t>(p.total_q, 1), chunks = ceil_div(all, most);
  return ceil_div(ceil_div(all, chunks), tile_tokens) * tile_tokens;
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
    if (threadIdx.x == 0 && pairs > 0) atomicAdd(chunk.head_pairs + head, pairs);
    if (has_block) {
      const std::int64_t number = tile.sequence * chunk.max_blocks + block;
      std::uint32_t* const readers_of_block = chunk.counts + head * chunk.blocks_of_head() + number;
      chunk.blocks[item * chunk.topk + lane] = {static_cast<std::uint32_t>(number), atomicAdd(readers_of_block, 1u)};
    }
  }
  if (lane == 0)
    chunk.tokens[item] = {static_cast<std::uint32_t>(row), warp < tile.tokens ? tile.limit(warp) : 0,
                          together ? 0 : count, 0};
}

/// From counts to first pairs, and to works. A thread block for each head; a thread has four neighbouring blocks of
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

/// What the heads before this one have, in all threads of a warp.
template <class Value>
__device__ std::uint32_t sum_before(std::int64_t head, Value value) {
  std::uint32_t sum = 0;
  for (std::int64_t h = threadIdx.x % 32; h < head; h += 32) sum += value(h);
  return __reduce_add_sync(all_lanes, sum);
}

__global__ void __launch_bounds__(scan_threads) list_works(attend_chunk chunk) {
  __shared__ std::uint32_t first_work;
  begin_in_turn();
  const auto head = static_cast<std::int64_t>(blockIdx.x);
  const std::int64_t blocks = chunk.blocks_of_head();
  const std::uint32_t* const counts = chunk.counts + head * blocks;
  const std::uint32_t first_pair = sum_before(head, [&](std::int64_t h) { return chunk.head_pairs[h]; });
  const uint2 all = walk_counts(counts, blocks, {first_pair, 0}, [&](std::int64_t b, std::uint32_t, uint2 before) {
    chunk.begins[head * blocks + b] = before.x;
  });
  if (threadIdx.x == 0) atomicExch(chunk.head_works + head, all.y + 1);
  if (threadIdx.x < 32) {
    // Thread blocks with smaller numbers have begun.
    const std::uint32_t before = sum_before(head, [&](std::int64_t h) {
      std::uint32_t known = 0;
      while ((known = atomicAdd(chunk.head_works + h, 0u)) == 0) {
      }
      return known - 1;
    });
    if (threadIdx.x == 0) {
      first_work = before;
      if (head + 1 == chunk.heads) *chunk.work_count = before + all.y;
    }
  }
  __syncthreads();
  walk_counts(counts, blocks, {first_pair, first_work}, [&](std::int64_t b, std::uint32_t count, uint2 before) {
    for (std::uint32_t i = 0; i < count; i += work_tokens)
      chunk.works[before.y + i / work_tokens] = {static_cast<std::uint32_t>(b), static_cast<std::uint32_t>(head),
                                                 before.x + i, min(count - i, static_cast<std::uint32_t>(work_tokens))};
  });
}

/// Pairs to their blocks.
__global__ void __launch_bounds__(256) place_pairs(attend_chunk chunk, std::int32_t block_keys) {
  begin_in_turn();
  const std::int64_t i = std::int64_t{blockIdx.x} * 256 + threadIdx.x, item = i / chunk.topk;
  if (item >= chunk.heads * chunk.tokens_of_head()) return;
  const listed_token token = chunk.tokens[item];
  const auto rank = static_cast<std::uint32_t>(i % chunk.topk);
  if (rank >= token.count) return;
  const listed_block entry = chunk.blocks[i];
  const std::int64_t head = item / chunk.tokens_of_head();
  const std::uint32_t first_key = static_cast<std::uint32_t>(entry.number % chunk.max_blocks) * block_keys;
  chunk.pairs[chunk.begins[head * chunk.blocks_of_head() + entry.number] + entry.place] = {
      token.row, static_cast<std::uint32_t>(item), rank | (rank + 1 == token.count ? token_pair::last_of_token : 0),
      min(token.limit - first_key, static_cast<std::uint32_t>(block_keys))};
}

}  // namespace

attend_chunk lay_out_attend_chunk(const msabench_problem& p, void* memory, double& bytes) {
  attend_chunk chunk{};
  chunk.sequences = p.batch;
  chunk.max_blocks = max_blocks(p);
  chunk.heads = p.hkv;
  chunk.topk = p.topk;
  const std::int64_t all_tiles = std::max<std::int64_t>(1, cuda::token_tile_bound(p.total_q, p.batch, tile_tokens));
  const std::int64_t tokens = chunk_tokens(p);
  chunk.tiles = p.total_q <= tokens ? all_tiles : ceil_div(tokens, tile_tokens);
  chunk.all_pairs = p.hkv * tokens * p.topk;
  chunk.all_works = chunk.all_pairs / work_tokens + std::min(chunk.all_pairs, p.hkv * chunk.blocks_of_head());
  chunk.blocks_of_tile = most_shared_blocks(chunk.topk);

  cuda::workspace_cutter cutter(memory);
  const auto heads = static_cast<double>(chunk.heads);
  const double blocks = heads * static_cast<double>(chunk.blocks_of_head());
  const double listed = heads * static_cast<double>(chunk.tokens_of_head());
  const double shared = heads * static_cast<double>(chunk.tiles);
  chunk.counts = cutter.take<std::uint32_t>(blocks);
  chunk.head_pairs = cutter.take<std::uint32_t>(heads);
  chunk.head_works = cutter.take<std::uint32_t>(heads);
  chunk.work_ticket = cutter.take<std::uint32_t>(1);
  chunk.added = cutter.take<std::uint32_t>(listed);
  chunk.tile_counts = cutter.take<std::uint32_t>(2);
  chunk.work_count = cutter.take<std::uint32_t>(1);
  chunk.begins = cutter.take<std::uint32_t>(blocks);
  chunk.tokens = cutter.take<listed_token>(listed);
  chunk.blocks = cutter.take<listed_block>(listed * chunk.topk);
  chunk.pairs = cutter.take<token_pair>(static_cast<double>(chunk.all_pairs));
  chunk.works = cutter.take<block_work>(static_cast<double>(chunk.all_works));
  chunk.shared_tiles = cutter.take<shared_tile>(shared);
  chunk.shared_blocks = cutter.take<shared_block>(shared * static_cast<double>(chunk.blocks_of_tile));
  chunk.sums = cutter.take<char>(listed * static_cast<double>(sum_bytes(p)));
  bytes = cutter.bytes();
  return chunk;
}

void list_attend_work(const attend_call& call, const attend_chunk& chunk, cudaStream_t stream) {
  cudaMemsetAsync(chunk.counts, 0, reinterpret_cast<char*>(chunk.work_count) - reinterpret_cast<char*>(chunk.counts),
                  stream);
  list_tokens<<<static_cast<unsigned>(chunk.heads * chunk.tiles), 32 * tile_tokens, 0, stream>>>(call, chunk);
  launch_in_turn(list_works, static_cast<unsigned>(chunk.heads), scan_threads, 0, stream, chunk);
  const std::int64_t entries = chunk.heads * chunk.tokens_of_head() * chunk.topk;
  launch_in_turn(place_pairs, static_cast<unsigned>(ceil_div(entries, 256)), 256, 0, stream, chunk, call.block);
}

}  // namespace msabench::cuda_sm90

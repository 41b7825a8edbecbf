// SPDX-License-Identifier: Apache-2.0
// Selections turned round: from the blocks of each token to the tokens of each block.
#pragma once

#include <msabench/plugin.h>

#include <cstdint>

#include "kernels/common/check.h"
#include "kernels/cuda/attention_keys.cuh"
#include "kernels/cuda/attention_output.cuh"
#include "kernels/cuda/attention_shapes.cuh"
#include "kernels/cuda/launch.cuh"

namespace msabench::cuda {

/// A token of the chunk that selected a block. The block is number `rank` of its `count`, ascending.
struct token_pair {
  std::uint32_t token;
  std::uint16_t rank, count;
};

/// Up to so many pairs of one block are a thread block's work.
constexpr int work_pairs = 32;
struct block_work {
  std::uint32_t block, first_pair;
};

/// Everything that a chunk of tokens needs in memory. Blocks are counted over heads, then sequences: a head's work is in one
/// piece, and later blocks of a sequence come after earlier ones.
struct gathered_chunk {
  std::int64_t tokens;  ///< at the most
  std::int64_t sequences, max_blocks;
  std::int32_t heads, topk;
  std::int64_t first;  ///< row of the token tensors

  std::uint32_t* counts;    ///< [blocks] pairs; 0 at the start
  std::uint32_t* done;      ///< [heads][tokens] blocks that have been added to the state; 0 at the start
  std::uint32_t* begins;    ///< [blocks + 1] first pair
  std::uint32_t* works_of;  ///< [heads + 1] first work
  std::uint32_t* listed;    ///< [heads][tokens] blocks of a token
  block_work* entries;      ///< [heads][tokens][topk] block, and place among its pairs
  token_pair* pairs;        ///< [heads][tokens][topk]
  block_work* works;        ///< [heads][most_works()]
  float4* state;            ///< [tokens][columns / 8 + 1][32]: sums of a token of the current head, by lanes
  double bytes;

  __host__ __device__ std::int64_t blocks_of_head() const { return sequences * max_blocks; }
  __host__ __device__ std::int64_t blocks() const { return heads * blocks_of_head(); }
  __host__ __device__ std::int64_t most_works() const {
    const std::int64_t most_pairs = tokens * topk;
    return most_pairs / work_pairs + (most_pairs < blocks_of_head() ? most_pairs : blocks_of_head());
  }
  __host__ __device__ std::int64_t at(std::int64_t head, std::int64_t token) const { return head * tokens + token; }
};

/// The chunks of a problem, laid out in `memory`.
inline gathered_chunk lay_out_chunk(const msabench_problem& p, void* memory) {
  constexpr double budget = 192e6;
  gathered_chunk chunk{};
  chunk.sequences = p.batch;
  chunk.max_blocks = max_blocks(p);
  chunk.heads = p.hkv;
  chunk.topk = p.topk;
  const int columns = shape_columns(false, p.d);
  const double of_token = 32 * 16 * (columns / 8 + 1) + 16.0 * p.hkv * (p.topk + 1);
  chunk.tokens = std::max<std::int64_t>(1, std::min(p.total_q, static_cast<std::int64_t>(budget / of_token)));
  const auto take = [&](auto*& pointer, std::int64_t count) {
    using value = std::remove_reference_t<decltype(*pointer)>;
    pointer = reinterpret_cast<value*>(static_cast<char*>(memory) + static_cast<std::int64_t>(chunk.bytes));
    chunk.bytes += static_cast<double>(ceil_div(count * static_cast<std::int64_t>(sizeof(value)), 256) * 256);
  };
  const std::int64_t tokens = chunk.heads * chunk.tokens;
  take(chunk.counts, chunk.blocks());
  take(chunk.done, tokens);
  take(chunk.begins, chunk.blocks() + 1);
  take(chunk.works_of, chunk.heads + 1);
  take(chunk.listed, tokens);
  take(chunk.entries, tokens * chunk.topk);
  take(chunk.pairs, tokens * chunk.topk);
  take(chunk.works, chunk.heads * chunk.most_works());
  take(chunk.state, chunk.tokens * (columns / 8 + 1) * 32);
  return chunk;
}

constexpr int list_warps = 4;

/// A warp for each (head, token): its blocks, counted where they are. Tokens without any are finished here.
static __global__ void __launch_bounds__(32 * list_warps) list_pairs(attend_call call, gathered_chunk chunk) {
  __shared__ std::int32_t lists[list_warps][32];
  const int lane = threadIdx.x % 32;
  std::int32_t* const blocks = lists[threadIdx.x / 32];
  const std::int64_t item = std::int64_t{blockIdx.x} * list_warps + threadIdx.x / 32;
  if (item >= chunk.heads * chunk.tokens) return;
  const std::int64_t head = item / chunk.tokens, row = chunk.first + item % chunk.tokens;
  const token_tile tile = token_tile_at(call.rows, row, 1);
  std::uint32_t count = 0;
  if (tile.tokens > 0) {
    const std::int64_t visible = visible_blocks({0, 0, tile.first_limit - 1}, call.block);
    count = list_blocks(call.ids + row * call.id_row_stride + head * call.id_head_stride, call.topk, visible, blocks);
    for (int r = 0; r < call.group && count == 0; ++r) {
      const row_output to(call, tile, head, r);
      for (int column = lane * 2; column < call.d; column += 64) to.pair(call, column, 0, 0, 0);
      if (lane == 0) to.lse(call, -CUDART_INF_F, 0);
    }
  }
  if (lane < static_cast<int>(count)) {
    const auto block =
        static_cast<std::uint32_t>(head * chunk.blocks_of_head() + tile.sequence * chunk.max_blocks + blocks[lane]);
    chunk.entries[item * chunk.topk + lane] = {block, atomicAdd(chunk.counts + block, 1u)};
  }
  if (lane == 0) chunk.listed[item] = count;
}

/// From counts to first pairs, and to work. One thread block; a thread has neighbouring blocks.
constexpr int scan_threads = 1024;
static __global__ void __launch_bounds__(scan_threads) scan_blocks(gathered_chunk chunk) {
  __shared__ uint2 warp_sums[scan_threads / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const std::int64_t blocks = chunk.blocks(), share = (blocks + scan_threads - 1) / scan_threads;
  const std::int64_t begin = min(threadIdx.x * share, blocks), end = min(begin + share, blocks);
  uint2 own{};  // pairs, works
  for (std::int64_t b = begin; b < end; ++b) {
    own.x += chunk.counts[b];
    own.y += (chunk.counts[b] + work_pairs - 1) / work_pairs;
  }
  uint2 sum = own;
  const auto scan_warp = [lane](uint2& value) {
    for (int step = 1; step < 32; step *= 2) {
      const uint2 before{__shfl_up_sync(~0u, value.x, step), __shfl_up_sync(~0u, value.y, step)};
      if (lane >= step) value = {value.x + before.x, value.y + before.y};
    }
  };
  scan_warp(sum);
  if (lane == 31) warp_sums[warp] = sum;
  __syncthreads();
  if (warp == 0) {
    uint2 total = warp_sums[lane];
    scan_warp(total);
    warp_sums[lane] = total;
  }
  __syncthreads();
  const uint2 before = warp > 0 ? warp_sums[warp - 1] : uint2{};
  std::uint32_t pair = before.x + sum.x - own.x, work = before.y + sum.y - own.y;
  const std::int64_t of_head = chunk.blocks_of_head();
  for (std::int64_t b = begin; b < end; ++b) {
    if (b % of_head == 0) chunk.works_of[b / of_head] = work;
    chunk.begins[b] = pair;
    const std::uint32_t count = chunk.counts[b];
    for (std::uint32_t i = 0; i < count; i += work_pairs)
      chunk.works[work++] = {static_cast<std::uint32_t>(b), pair + i};
    pair += count;
  }
  if (end == blocks && begin < end) {
    chunk.begins[blocks] = pair;
    chunk.works_of[chunk.heads] = work;
  }
}

/// Pairs to their blocks. Their order there is another in every run, and nothing depends on it.
static __global__ void __launch_bounds__(256) place_pairs(gathered_chunk chunk) {
  const std::int64_t i = std::int64_t{blockIdx.x} * 256 + threadIdx.x, item = i / chunk.topk;
  const auto rank = static_cast<std::uint32_t>(i % chunk.topk);
  if (item >= chunk.heads * chunk.tokens || rank >= chunk.listed[item]) return;
  const block_work entry = chunk.entries[i];
  chunk.pairs[chunk.begins[entry.block] + entry.first_pair] = {static_cast<std::uint32_t>(item % chunk.tokens),
                                                               static_cast<std::uint16_t>(rank),
                                                               static_cast<std::uint16_t>(chunk.listed[item])};
}

}  // namespace msabench::cuda

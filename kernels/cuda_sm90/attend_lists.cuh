// SPDX-License-Identifier: Apache-2.0
// The selections of a chunk of tokens, sorted into work: tiles of neighbouring tokens that mostly read the same blocks,
// and for all other tokens the selection turned round, from the blocks of each token to the tokens of each block.
//
// Where in a list something stands is another place in every run; no result depends on it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <msabench/plugin.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/attention_keys.cuh"

namespace msabench::cuda_sm90 {

using namespace msabench::kernels;

/// Tokens of a tile that share the blocks of all of them.
inline constexpr int tile_tokens = 8;
/// Tokens of one block that are a unit of work, at the most.
inline constexpr int work_tokens = 32;
/// More blocks of one token don't go into the lanes of a warp.
inline constexpr int most_listed = 32;
/// What a pair of a token and a block costs alone, in eighths of what it costs among eight tokens that read the block.
inline constexpr std::uint32_t pair_cost = 14;
/// Whether a tile of tokens reads its blocks together: all `blocks` of them for each token, instead of `pairs` alone.
constexpr bool reads_together(std::uint32_t blocks, std::uint32_t pairs) {
  return blocks * tile_tokens * 8 <= pairs * pair_cost;
}
/// Blocks that such a tile has at the most.
constexpr std::int64_t most_shared_blocks(std::int64_t topk) { return topk * pair_cost / 8; }

/// A token of the chunk, for one KV head.
struct alignas(16) listed_token {
  std::uint32_t row;
  std::uint32_t limit;  ///< keys that it sees
  std::uint32_t count;  ///< of its blocks; 0: it has none, or is in a tile
  std::uint32_t unused;
};

/// A block of a token, by its number, sequence * max_blocks + ..., and the token's place among those that read it.
struct alignas(8) listed_block {
  std::uint32_t number, place;
};

/// A token that reads a block, which of its blocks this is, and how many of the block's keys it sees.
struct alignas(16) token_pair {
  std::uint32_t row, item;  ///< in the call, and among listed tokens
  std::uint32_t rank;       ///< 0: its first block; and last_of_token
  std::uint32_t keys;

  static constexpr std::uint32_t last_of_token = 1u << 31;
};

struct alignas(16) block_work {
  std::uint32_t block, head, first_pair, count;
};

/// Tokens that read their blocks together, and how many these are.
struct alignas(16) shared_tile {
  std::uint32_t first, tokens;  ///< rows
  std::uint32_t head, sequence, blocks;
  std::uint32_t limits[tile_tokens];  ///< keys that each token sees; 0: it has none, or isn't there
};
/// A block of a tile, and its readers, a bit for each token.
struct alignas(8) shared_block {
  std::uint32_t block, readers;
};

/// What a token has of its blocks so far, as the lanes of a warp have it: weighted values over the sum of weights. Those
/// of bf16 are in fp16, times a power of two for each row; those of fp16 in fp32.
template <class T>
struct token_sums {
  static constexpr bool halves = std::is_same_v<T, __nv_bfloat16>;
  static constexpr int parts = halves ? 4 : 8;  ///< of a lane, for each of its two rows
  uint4 out[2][parts][32];
  float4 rows[16];  ///< greatest score, sum of weights, and what `out` is multiplied by
};

/// Everything that a chunk needs in memory. Token n of a chunk is token n % 8 of tile n / 8. Works of a head follow each
/// other by blocks, and so do heads.
struct attend_chunk {
  std::int64_t first_tile, tiles;  ///< of 8 tokens
  std::int64_t sequences, max_blocks;
  std::int64_t all_pairs, all_works;  ///< at the most
  std::int64_t blocks_of_tile;        ///< room for
  std::int32_t heads, topk;

  std::uint32_t* counts;        ///< [heads][sequences * max_blocks] pairs; 0 at the start, and so are
  std::uint32_t* head_pairs;    ///< [heads],
  std::uint32_t* head_works;    ///< [heads] and 1 more: 0 is not known yet,
  std::uint32_t* work_ticket;   ///< [1] works that have been begun,
  std::uint32_t* added;         ///< [heads][tiles * 8] blocks that are in the sums of a token,
  std::uint32_t* tile_counts;   ///< [2] tiles that read together, and those that have been begun
  std::uint32_t* work_count;    ///< [1]
  std::uint32_t* begins;        ///< [heads][sequences * max_blocks] first pair
  listed_token* tokens;         ///< [heads][tiles * 8]
  listed_block* blocks;         ///< [heads][tiles * 8][topk] ascending
  token_pair* pairs;            ///< [all_pairs]
  block_work* works;            ///< [all_works]
  shared_tile* shared_tiles;    ///< [heads * tiles]
  shared_block* shared_blocks;  ///< [heads * tiles][blocks_of_tile]
  void* sums;                   ///< [heads][tiles * 8] token_sums

  __host__ __device__ std::int64_t blocks_of_head() const { return sequences * max_blocks; }
  __host__ __device__ std::int64_t tokens_of_head() const { return tiles * tile_tokens; }
};

/// The chunk of a problem, laid out in `memory`; without memory, only its bytes are counted.
attend_chunk lay_out_attend_chunk(const msabench_problem& problem, void* memory, double& bytes);

/// Enqueues the kernels that sort the selections of a chunk. Tokens without keys are finished by them.
void list_attend_work(const attend_call& call, const attend_chunk& chunk, cudaStream_t stream);

}  // namespace msabench::cuda_sm90

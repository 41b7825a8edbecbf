// SPDX-License-Identifier: Apache-2.0
// The selections of a chunk of tokens, sorted into work: tiles of neighbouring tokens that mostly read the same blocks,
// and for all other tokens the selection turned round, from the blocks of each token to the tokens of each block.
//
// Where in a list something stands is another place in every run; no result depends on it.
#pragma once

#include <msabench/plugin.h>

#include <cstdint>

#include "kernels/cuda/attention_keys.cuh"

namespace msabench::cuda_sm90 {

using namespace msabench::kernels;

/// Tokens of a tile that share the blocks of all of them.
inline constexpr int tile_tokens = 8;
/// Tokens of one block that are a unit of work, at the most.
inline constexpr int work_tokens = 32;
/// More blocks of one token don't go into the lanes of a warp.
inline constexpr int most_listed = 32;
/// Pairs of the tokens that are a unit, at the most.
inline constexpr int unit_pairs = 64;

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

/// A block of a token, as its number, sequence * max_blocks + ..., and the token's place among those that read it; then
/// as the pair's number.
struct alignas(8) listed_block {
  std::uint32_t number, place;
};
inline constexpr std::uint32_t no_pair = ~0u;

/// A token that reads a block, and how many of the block's keys it sees.
struct alignas(8) token_pair {
  std::uint32_t row, keys;
};

struct alignas(16) block_work {
  std::uint32_t block, pass, first_pair, count;
};

/// A pass: neighbouring blocks of a stream, and what of the lists is theirs.
struct alignas(16) pass_extent {
  std::uint32_t first_pair, end_pair, works, unused;
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

/// What a token has of a block, or of the passes so far: the weighted mean of values, rounded, as the lanes of a warp have
/// it, and the greatest score and sum of weights of each row.
struct alignas(128) pair_result {
  uint4 out[8][32];
  float2 stats[16];
};

/// Everything that a chunk needs in memory. Token n of a chunk is token n % 8 of tile n / 8.
///
/// A stream is a KV head and a segment of the tokens, its passes are ranges of the blocks that these read, as many whole
/// blocks as a pass has room for. Streams follow each other, and so do passes, works and pairs, which are numbered
/// through. The result of pair n is at place n % room. Passes can be empty: most blocks leave less room unused than the
/// largest one could.
struct attend_chunk {
  std::int64_t first_tile, tiles;  ///< of 8 tokens
  std::int64_t sequences, max_blocks;
  std::int64_t segment_tiles, segments;
  std::int64_t all_pairs, all_works;  ///< at the most
  std::int64_t pairs_of_pass, room;
  std::int64_t blocks_of_tile;  ///< room for
  std::int32_t heads, topk;
  std::int32_t ranges;       ///< passes of a stream
  std::int32_t unit_tokens;  ///< whose results are added up by a thread block at a time

  std::uint32_t* counts;        ///< [streams][sequences * max_blocks] pairs; 0 at the start, and so are
  std::uint32_t* stream_pairs;  ///< [streams],
  std::uint32_t* stream_works;  ///< [streams] and 1 more: 0 is not known yet,
  std::uint32_t* tickets;       ///< [2] works and units of tokens that have been begun,
  std::uint32_t* works_done;    ///< [passes],
  std::uint32_t* units_done;    ///< [passes] times that warps have told of a unit that they have read,
  std::uint32_t* tile_counts;   ///< [2] tiles that read together, and those that have been begun
  std::uint32_t* work_count;    ///< [1]
  std::uint32_t* begins;        ///< [streams][sequences * max_blocks] first pair
  pass_extent* passes;          ///< [streams * ranges]
  listed_token* tokens;         ///< [heads][tiles * 8]
  listed_block* blocks;         ///< [heads][tiles * 8][topk] ascending
  token_pair* pairs;            ///< [all_pairs]
  block_work* works;            ///< [all_works]
  shared_tile* shared_tiles;    ///< [heads * tiles]
  shared_block* shared_blocks;  ///< [heads * tiles][blocks_of_tile]
  pair_result* results;         ///< [room]
  pair_result* states;          ///< [tiles * 8] what a token has between passes; unused with one range

  __host__ __device__ std::int64_t blocks_of_stream() const { return sequences * max_blocks; }
  __host__ __device__ std::int64_t tokens_of_head() const { return tiles * tile_tokens; }
  __host__ __device__ std::int64_t streams() const { return heads * segments; }
  __host__ __device__ std::int64_t pass_count() const { return streams() * ranges; }
  __device__ std::int32_t head_of_pass(std::uint32_t pass) const {
    return static_cast<std::int32_t>(pass / static_cast<std::uint32_t>(segments * ranges));
  }
  __device__ std::uint32_t told_of_pass() const { return 4 * units_of_pass(); }
  __host__ __device__ std::uint32_t units_of_pass() const {
    return static_cast<std::uint32_t>((segment_tiles * tile_tokens + unit_tokens - 1) / unit_tokens);
  }
};

/// The chunk of a problem, laid out in `memory`; without memory, only its bytes are counted.
attend_chunk lay_out_attend_chunk(const msabench_problem& problem, void* memory, double& bytes);

/// Enqueues the kernels that sort the selections of a chunk. Tokens without keys are finished by them.
void list_attend_work(const attend_call& call, const attend_chunk& chunk, cudaStream_t stream);

}  // namespace msabench::cuda_sm90

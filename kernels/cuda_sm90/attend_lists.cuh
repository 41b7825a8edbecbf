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

/// What a pair of a token and a block costs alone, in eighths of what it costs among eight tokens that read the block.
inline constexpr std::uint32_t pair_cost = 14;
/// Whether a tile of tokens reads its blocks together: all `blocks` of them for each token, instead of `pairs` alone.
constexpr bool reads_together(std::uint32_t blocks, std::uint32_t pairs) {
  return blocks * tile_tokens * 8 <= pairs * pair_cost;
}
/// Tokens that are alone in their sequences read as tiles of one, whatever that costs: their results are in fp32 to the end.
inline bool stores_no_partials(const msabench_problem& p) { return p.max_q_len == 1; }
/// Blocks that such a tile has at the most.
constexpr std::int64_t most_shared_blocks(std::int64_t topk) { return topk * pair_cost / 8; }

/// A token of the chunk, for one KV head.
struct alignas(16) listed_token {
  std::uint32_t row;
  std::uint32_t limit;  ///< keys that it sees
  std::uint32_t count;  ///< of its blocks; 0: it has none, or is in a tile
  std::uint32_t unused;
};

/// A block of a token: the pass that computes it, and the place of the result there. Until blocks have their passes,
/// its number, sequence * max_blocks + ..., and its place among the pairs of that.
struct alignas(8) listed_block {
  std::uint32_t pass, place;
};

/// A token that reads a block, and how many of the block's keys it sees.
struct alignas(8) token_pair {
  std::uint32_t row, keys;
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

/// Everything that a chunk needs in memory. Token n of a chunk is token n % 8 of tile n / 8.
///
/// The results of pairs are kept for one pass at a time. A pass goes through some heads, which are a group, or through
/// a range of the blocks of one: as many whole blocks as there is room for. Later ranges add to what tokens have of
/// earlier ones. Ranges can be empty: most blocks leave less room unused than the largest one could.
struct attend_chunk {
  std::int64_t first_tile, tiles;  ///< of 8 tokens
  std::int64_t sequences, max_blocks;
  std::int64_t pairs_of_head, pairs_of_pass, works_of_group;  ///< at the most
  std::int64_t blocks_of_tile;                                ///< room for
  std::int32_t heads, topk;
  bool tokens_alone;  ///< of a sequence: they read their blocks as tiles of one token, and store no partial results
  std::int32_t heads_of_group, groups, ranges;

  std::uint32_t* counts;        ///< [heads][sequences * max_blocks] pairs; 0 at the start, and so are
  std::uint32_t* first_works;   ///< [groups][ranges + 1],
  std::uint32_t* work_cursors;  ///< [groups][ranges] works that have been begun, beside the first of each thread block,
  std::uint32_t* tile_counts;   ///< [2] tiles that read together, and as work_cursors
  std::uint32_t* first_pairs;   ///< [groups][ranges + 1], counted in the group
  std::uint32_t* begins;        ///< [heads][sequences * max_blocks] first pair, counted in the group
  listed_token* tokens;         ///< [heads][tiles * 8]
  listed_block* blocks;         ///< [heads][tiles * 8][topk] ascending
  token_pair* pairs;            ///< [groups][heads_of_group * pairs_of_head]
  block_work* works;            ///< [groups][works_of_group]
  shared_tile* shared_tiles;    ///< [heads * tiles]
  shared_block* shared_blocks;  ///< [heads * tiles][blocks_of_tile]
  uint4* partial_out;           ///< [results][8][32] as the lanes of a warp have it
  float2* partial_stats;        ///< [results][16] greatest score and sum of a row
  // What a token has of its earlier ranges; unused with one range.
  float2* state_stats;  ///< [tiles * 8][16] greatest score and sum of a row
  uint4* state_low;     ///< [tiles * 8][4][32] the last 8 bits of its sums, of which `out` has 16

  __host__ __device__ std::int64_t blocks_of_head() const { return sequences * max_blocks; }
  __host__ __device__ std::int64_t tokens_of_head() const { return tiles * tile_tokens; }
  __host__ __device__ std::int64_t pairs_of_group() const { return heads_of_group * pairs_of_head; }
};

/// One of the passes over a chunk.
struct attend_pass {
  std::int32_t group, range;

  __device__ std::uint32_t first_work(const attend_chunk& chunk) const { return chunk.first_works[index(chunk)]; }
  __device__ std::uint32_t end_work(const attend_chunk& chunk) const { return chunk.first_works[index(chunk) + 1]; }
  /// Whose result is the first of this pass.
  __device__ std::uint32_t first_pair(const attend_chunk& chunk) const { return chunk.first_pairs[index(chunk)]; }

 private:
  __device__ std::int32_t index(const attend_chunk& chunk) const { return group * (chunk.ranges + 1) + range; }
};

/// The chunk of a problem, laid out in `memory`; without memory, only its bytes are counted.
attend_chunk lay_out_attend_chunk(const msabench_problem& problem, void* memory, double& bytes);

/// Enqueues the kernels that sort the selections of a chunk. Tokens without keys are finished by them.
void list_attend_work(const attend_call& call, const attend_chunk& chunk, cudaStream_t stream);

}  // namespace msabench::cuda_sm90

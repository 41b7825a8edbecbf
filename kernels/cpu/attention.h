// SPDX-License-Identifier: Apache-2.0
// The core of attend and dense: rows of queries against a list of keys, in chunks (tile.h).
//
// Weights are 2^(score * scale - reference) with scale = softmax_scale * log2(e) and a whole number as reference, at
// least the row's greatest exponent so far. Moving on to a greater reference multiplies by a power of two, which rounds
// nothing, so it does not matter how often it happens.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/common/calls.h"
#include "kernels/cpu/tile.h"

namespace msabench::cpu {

using namespace kernels;

/// Entries first .. first + count - 1 of a list of keys; at most tile_keys of them.
struct key_range {
  std::int64_t first;
  std::int32_t count;
};

/// Keys of one sequence, in the order in which they are added: those of blocks, or all from position 0 on. They are
/// added in tiles.
struct key_list {
  std::int64_t sequence;
  std::int32_t kv_head;
  const std::int32_t* blocks;  ///< ascending, all but the last one complete; nullptr = all keys
  std::int32_t block;          ///< keys of a block; any number if all keys are listed
  std::int64_t count;          ///< keys

  std::int64_t position(std::int64_t i) const {
    return blocks == nullptr ? i : std::int64_t{blocks[i / block]} * block + i % block;
  }
  std::int64_t tiles() const;
  key_range tile(std::int64_t index) const;
};

/// Addresses of a range of the list's entries in a cache.
void gather(const cache& from, const key_list& keys, const key_range& range, const char** to);

/// Rows before the division. A row without keys has reference -infinity.
struct partial_rows {
  float* sums;        ///< [rows][stride], weights times values
  float* references;  ///< [rows]
  float* weights;     ///< [rows], sums of the weights
};

/// A part of partial_rows, from a row on.
partial_rows rows_from(const partial_rows& rows, std::int64_t first, std::int64_t stride);

/// Tokens first .. end - 1 of the rows, for one of their KV heads.
struct token_range {
  std::int32_t head, first, end;
};

/// The blocks of a token, and how far they have been added.
struct shared_row {
  const std::int32_t* blocks;  ///< ascending
  std::int32_t count, next;
  std::int64_t chunk, tiles;  ///< tiles of a chunk; tiles added to the current one
};

/// Query rows that share a list of keys, for each of some KV heads: the query heads of a group, token after token.
struct query_rows {
  const float* queries;  ///< [heads][tokens][group][d]
  std::int32_t heads, tokens, group;
  float scale;                 ///< of the base-2 exponents, not negative
  std::int64_t first_visible;  ///< entries of the list that the first token sees; every later token one more, if any

  std::int64_t count() const { return std::int64_t{heads} * tokens * group; }
};

/// Addresses of the keys and values of a tile.
struct tile_addresses {
  const char **keys, **values;  ///< [tile_keys]
};

/// What a thread computes in.
struct attention_scratch {
  float* queries;  ///< [rows][d]
  float* scores;   ///< [rows][tile_keys]
  float* panel;    ///< [max(d, tile_keys)][panel_columns]
  tile_addresses addresses, ahead;
  std::int32_t* blocks;      ///< [tokens][capacity]
  std::int32_t* all_blocks;  ///< [tokens * capacity]
  shared_row* shared;        ///< [tokens]
  token_range* runs;         ///< [tokens]
  partial_rows chunk, total;
};

/// Keys of a range that a token sees; its first ones.
inline std::int32_t seen_in(const query_rows& rows, const key_range& range, std::int32_t token) {
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(rows.first_visible + token - range.first, 0, range.count));
}

/// Where keys and values lie. Without values (data nullptr) only the weights are summed.
struct attention_caches {
  cache keys, values;
  std::int32_t d;
};

inline std::int64_t sum_columns(const attention_caches& caches) {
  return caches.values.data == nullptr ? 0 : padded_columns(caches.d);
}

/// Some of the rows, in `count` runs of tokens, against the tile at scratch.addresses, which is this range of their list.
/// Adds to `to`. Meanwhile scratch.ahead is brought near, `ahead` keys.
void attend_tile(const attention_caches& caches, const query_rows& rows, const key_range& range,
                 const token_range* runs, std::int32_t count, std::int32_t ahead, const attention_scratch& scratch,
                 const partial_rows& to);
/// The rows against tiles first .. end - 1 of the list, which is one for each head, from the list's own head on. Overwrites
/// `to`.
void attend_tiles(const attention_caches& caches, const key_list& keys, const query_rows& rows, std::int64_t first,
                  std::int64_t end, const attention_scratch& scratch, const partial_rows& to);

/// total += chunk
void merge_rows(const partial_rows& chunk, std::int64_t rows, std::int64_t stride, const partial_rows& total);

/// Rows without keys.
void clear_rows(std::int64_t rows, std::int64_t stride, const partial_rows& to);

/// The rows against the whole list, `chunk` tiles at a time, into scratch.total.
void attend_list(const attention_caches& caches, const key_list& keys, const query_rows& rows, std::int64_t chunk,
                 const attention_scratch& scratch);

/// The same for rows of tokens that have blocks of their own, in scratch.shared: a block that several of them have is
/// loaded once. `keys` are all that the last token sees, with the block that the ids count in, at least
/// least_block_tile.
void attend_shared(const attention_caches& caches, const key_list& keys, const query_rows& rows,
                   const attention_scratch& scratch);

/// A finished row of d elements, sums / weight, rounded once to its storage type; 0 if the weight is.
void divide_row(float* sums, float weight, std::int32_t d, msabench_dtype type, char* to);

/// Natural logarithm of the sum of a row's exponentials.
float log_sum(const partial_rows& rows, std::int64_t row);

/// Distinct blocks in 0 .. visible - 1 of ids [topk], ascending. Returns their number; `blocks` holds topk of them.
std::int32_t row_blocks(const std::int32_t* ids, std::int32_t topk, std::int64_t visible, std::int32_t* blocks);

/// The keys of these blocks among the first `seen` of the sequence.
key_list keys_of_blocks(std::int64_t sequence, std::int32_t kv_head, const std::int32_t* blocks, std::int32_t count,
                        std::int32_t block, std::int64_t seen);

/// d elements of a query row in fp32, times 1 or -1.
void widen(const char* from, msabench_dtype type, std::int32_t d, float factor, float* to);

/// Lanes of the vectors on this machine: a sum of weights is as many sums.
int vector_lanes();

/// Sizes of an attention_scratch.
struct scratch_sizes {
  std::int64_t heads, tokens, group, d, columns, capacity;
  std::int64_t rows() const { return heads * tokens * group; }
};
partial_rows take_rows(carver& memory, double rows, std::int64_t columns);
attention_scratch take_scratch(carver& memory, const scratch_sizes& sizes);

}  // namespace msabench::cpu

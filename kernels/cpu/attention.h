// SPDX-License-Identifier: Apache-2.0
// The core of attend and dense: rows of queries against a list of keys, in chunks (tile.h).
//
// Weights are 2^(score * scale - reference) with scale = softmax_scale * log2(e) and a whole number as reference, at
// least the row's greatest exponent so far. Moving on to a greater reference multiplies by a power of two, which rounds
// nothing, so it does not matter how often it happens.
#pragma once

#include <cstdint>

#include "kernels/common/calls.h"
#include "kernels/cpu/tile.h"

namespace msabench::cpu {

using namespace kernels;

/// Keys of one sequence, in the order in which they are added: those of blocks, or all from position 0 on.
struct key_list {
  std::int64_t sequence;
  std::int32_t kv_head;
  const std::int32_t* blocks;  ///< ascending, all but the last one complete; nullptr = all keys
  std::int32_t block;          ///< keys of a block
  std::int64_t count;          ///< keys

  std::int64_t position(std::int64_t i) const {
    return blocks == nullptr ? i : std::int64_t{blocks[i / block]} * block + i % block;
  }
};

/// Addresses of the list's entries first .. first + count - 1 in a cache.
void gather(const cache& from, const key_list& keys, std::int64_t first, std::int64_t count, const char** to);

/// Rows before the division. A row without keys has reference -infinity.
struct partial_rows {
  float* sums;        ///< [rows][stride], weights times values
  float* references;  ///< [rows]
  float* weights;     ///< [rows], sums of the weights
};

/// Query rows that share a list of keys: the heads of a group, token after token.
struct query_rows {
  const float* queries;  ///< [tokens * group][d]
  std::int32_t tokens, group;
  float scale;                 ///< of the base-2 exponents, not negative
  std::int64_t first_visible;  ///< entries of the list that the first token sees; every later token sees one more
};

/// What a thread computes in.
struct attention_scratch {
  float* queries;          ///< [rows][d]
  float* scores;           ///< [rows][tile_keys]
  float* key_panels;       ///< [tile_keys][d]
  float* value_panels;     ///< [padded d][tile_keys]
  const char** addresses;  ///< [tile_keys]
  std::int32_t* blocks;    ///< [capacity]
  partial_rows chunk, total;
};

/// Where keys and values lie. Without values (data nullptr) only the weights are summed.
struct attention_caches {
  cache keys, values;
  std::int32_t d;
};

inline std::int64_t sum_columns(const attention_caches& caches) {
  return caches.values.data == nullptr ? 0 : padded_columns(caches.d);
}

/// The rows against entries first .. first + count - 1 of the list. Overwrites `to`.
void attend_chunk(const attention_caches& caches, const key_list& keys, const query_rows& rows, std::int64_t first,
                  std::int64_t count, const attention_scratch& scratch, const partial_rows& to);

/// total += chunk
void merge_rows(const partial_rows& chunk, std::int64_t rows, std::int64_t stride, const partial_rows& total);

/// Rows without keys.
void clear_rows(std::int64_t rows, std::int64_t stride, const partial_rows& to);

/// The rows against the whole list, chunk after chunk, into scratch.total.
void attend_list(const attention_caches& caches, const key_list& keys, const query_rows& rows, std::int64_t chunk,
                 const attention_scratch& scratch);

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
  std::int64_t rows, d, columns, capacity;
};
partial_rows take_rows(carver& memory, double rows, std::int64_t columns);
attention_scratch take_scratch(carver& memory, const scratch_sizes& sizes);

}  // namespace msabench::cpu

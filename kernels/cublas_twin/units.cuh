// SPDX-License-Identifier: Apache-2.0
// What the units of a pass stand for: which sequence and KV head, which query tokens, which keys.
//
// Both kinds answer the same questions, so the kernels that copy, mask and store don't know which of them they have:
//   row(query)            row of the token tensors; -1: none
//   position(row)         of the row's token in its sequence, which is the last key that it sees
//   token(key)            position of a key in the sequence; `no_token`: none
//   visible(key, last)    how many of the four keys from `key` on, a multiple of four, are at `last` at most
//   limit()               tokens of the sequence that may be read at all
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/common/lengths.h"

namespace msabench::cublas_twin {

constexpr std::int64_t no_token = std::numeric_limits<std::int64_t>::max();

__device__ inline std::int32_t up_to_four(std::int64_t count) {
  return static_cast<std::int32_t>(count < 0 ? 0 : count < 4 ? count : 4);
}

/// Of score and dense: some query tokens of a sequence and consecutive keys.
struct sequence_unit {
  std::int64_t sequence, head, part;
  std::int64_t first_row, end_row;  ///< of the sequence, from the pass's first query token on
  std::int64_t length, first_token, keys;

  __device__ std::int64_t row(std::int64_t query) const { return first_row + query < end_row ? first_row + query : -1; }
  __device__ std::int64_t position(std::int64_t row) const { return length - (end_row - row); }
  __device__ std::int64_t token(std::int64_t key) const { return key < keys ? first_token + key : no_token; }
  __device__ std::int32_t visible(std::int64_t key, std::int64_t last) const {
    const std::int64_t end = last + 1 - first_token;
    return up_to_four((end < keys ? end : keys) - key);
  }
  __device__ std::int64_t limit() const { return length; }
};

struct sequence_units {
  kernels::lengths rows;
  std::int64_t first_sequence, first_query, first_part;
  std::int64_t heads, parts, keys;

  __device__ sequence_unit at(std::int64_t unit) const {
    sequence_unit u{};
    u.sequence = first_sequence + unit / (heads * parts);
    u.head = unit / parts % heads;
    u.part = first_part + unit % parts;
    u.first_token = u.part * keys;
    u.keys = keys;
    // The last pass over the sequences may have room for more than there are.
    if (u.sequence >= rows.batch) return u;
    u.first_row = rows.cu_seqlens_q[u.sequence] + first_query;
    u.end_row = rows.cu_seqlens_q[u.sequence + 1];
    u.length = rows.kv_lens[u.sequence];
    return u;
  }
};

/// Of attend: one query token and the keys of its blocks, each of which begins at a multiple of four.
struct row_unit {
  std::int64_t sequence, head, own_row, own_position;
  std::int32_t block, padded_block, capacity;
  const std::int32_t* blocks;  ///< [capacity], distinct and visible, then -1

  __device__ std::int64_t row(std::int64_t) const { return own_row; }
  __device__ std::int64_t position(std::int64_t) const { return own_position; }
  __device__ std::int64_t token(std::int64_t key) const {
    const std::int32_t slot = static_cast<std::int32_t>(key) / padded_block;
    const std::int32_t offset = static_cast<std::int32_t>(key) - slot * padded_block;
    const std::int32_t id = slot < capacity && offset < block ? blocks[slot] : -1;
    return id < 0 ? no_token : std::int64_t{id} * block + offset;
  }
  __device__ std::int32_t visible(std::int64_t key, std::int64_t last) const {
    const std::int32_t slot = static_cast<std::int32_t>(key) / padded_block;
    const std::int32_t offset = static_cast<std::int32_t>(key) - slot * padded_block;
    const std::int32_t id = slot < capacity ? blocks[slot] : -1;
    if (id < 0) return 0;
    const std::int64_t end = last + 1 - std::int64_t{id} * block;
    return up_to_four((end < block ? end : block) - offset);
  }
  __device__ std::int64_t limit() const { return own_position + 1; }
};

struct row_units {
  std::int64_t first_row, heads;
  std::int32_t block, padded_block, capacity;
  const std::int32_t* blocks;        ///< [units][capacity]
  const kernels::row_place* places;  ///< [units]; sequence -1: no such row

  __device__ row_unit at(std::int64_t unit) const {
    const kernels::row_place& place = places[unit];
    const std::int64_t row = place.sequence < 0 ? -1 : first_row + unit / heads;
    return {place.sequence, unit % heads, row, place.position, block, padded_block, capacity, blocks + unit * capacity};
  }
};

}  // namespace msabench::cublas_twin

// SPDX-License-Identifier: Apache-2.0
// What the units of a pass stand for: which sequence and KV head, which query tokens, which keys.
//
// Both kinds answer the same questions, so the kernels that copy, mask and store don't know which of them they have:
//   sequence(unit), head(unit)
//   row(unit, query)       row of the token tensors; -1: none
//   position(unit, row)    of the row's token in its sequence, which is the last key that it sees
//   token(unit, key)       position of a key in the sequence; `no_token`: none
//   limit(unit)            tokens of the sequence that may be read at all
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/common/lengths.h"

namespace msabench::cublas_twin {

constexpr std::int64_t no_token = std::numeric_limits<std::int64_t>::max();

/// Of score and dense: some query tokens of each sequence and consecutive parts of its keys.
struct sequence_units {
  kernels::lengths rows;
  std::int64_t first_sequence, first_query, first_part;
  std::int64_t heads, parts, keys;

  __device__ std::int64_t sequence(std::int64_t unit) const { return first_sequence + unit / (heads * parts); }
  __device__ std::int64_t head(std::int64_t unit) const { return unit / parts % heads; }
  __device__ std::int64_t part(std::int64_t unit) const { return first_part + unit % parts; }
  __device__ std::int64_t row(std::int64_t unit, std::int64_t query) const {
    const std::int64_t b = sequence(unit);
    // The last pass over the sequences or the query tokens may have room for more than there are.
    if (b >= rows.batch) return -1;
    const std::int64_t row = rows.cu_seqlens_q[b] + first_query + query;
    return row < rows.cu_seqlens_q[b + 1] ? row : -1;
  }
  __device__ std::int64_t position(std::int64_t unit, std::int64_t row) const {
    const std::int64_t b = sequence(unit);
    return rows.kv_lens[b] - (rows.cu_seqlens_q[b + 1] - row);
  }
  __device__ std::int64_t token(std::int64_t unit, std::int64_t key) const {
    return key < keys ? part(unit) * keys + key : no_token;
  }
  __device__ std::int64_t limit(std::int64_t unit) const {
    const std::int64_t b = sequence(unit);
    return b < rows.batch ? rows.kv_lens[b] : 0;
  }
};

/// Of attend: one query token each, and the keys of its blocks.
struct row_units {
  std::int64_t first_row, heads;
  std::int32_t block, capacity;
  const std::int32_t* blocks;        ///< [units][capacity], distinct and visible, then -1
  const kernels::row_place* places;  ///< [units]; sequence -1: no such row

  __device__ std::int64_t sequence(std::int64_t unit) const { return places[unit].sequence; }
  __device__ std::int64_t head(std::int64_t unit) const { return unit % heads; }
  __device__ std::int64_t row(std::int64_t unit, std::int64_t) const {
    return places[unit].sequence < 0 ? -1 : first_row + unit / heads;
  }
  __device__ std::int64_t position(std::int64_t unit, std::int64_t) const { return places[unit].position; }
  __device__ std::int64_t token(std::int64_t unit, std::int64_t key) const {
    const auto slot = static_cast<std::int32_t>(key) / block, offset = static_cast<std::int32_t>(key) % block;
    if (slot >= capacity) return no_token;
    const std::int32_t id = blocks[unit * capacity + slot];
    return id < 0 ? no_token : std::int64_t{id} * block + offset;
  }
  __device__ std::int64_t limit(std::int64_t unit) const { return places[unit].position + 1; }
};

}  // namespace msabench::cublas_twin

// SPDX-License-Identifier: Apache-2.0
// The core of attend_backward and dense_backward: a tile of keys against rows of queries, from either side. Weights are
// made again from the scores and the log-sum-exp handed in, p = 2^(score * scale - lse), and dS = p (<dO, v> - D).
#pragma once

#include <cstdint>

#include "kernels/common/calls.h"
#include "kernels/cpu/attention.h"

namespace msabench::cpu {

using namespace kernels;

/// Of each row (token, query head), in base 2: its log-sum-exp, and D = <dO, o>.
struct row_sums {
  const float *lse, *delta;
};

/// D of a row. d elements of each type.
float product(const char* a, const char* b, msabench_dtype type, std::int32_t d);

/// Query rows in fp32 that read tiles of keys.
struct gradient_rows {
  const float *queries, *d_out;  ///< [tokens][group][d]
  row_sums sums;                 ///< [tokens][group]
  std::int32_t group, d;
  float scale;  ///< of the base-2 exponents

  std::int64_t first(std::int32_t token) const { return std::int64_t{token} * group; }
};

/// Addresses of the `count` <= tile_keys keys and values of a tile.
struct gradient_tile {
  const char *const *keys, *const *values;
  msabench_dtype type;
  std::int32_t count;
};

/// What a thread computes in.
struct gradient_scratch {
  float *scores, *d_weights;  ///< [rows or tile_keys][tile_keys or columns]
  float* panel;               ///< [max(d, tile_keys, columns)][panel_columns]
};

/// dq [tokens][group][padded_columns(d)] += dS k, without softmax_scale, for `runs` runs of tokens. `seen` [tokens]: how many
/// of the tile's keys, its first ones, a token sees; 0 for none.
void add_dq(const gradient_rows& rows, const gradient_tile& tile, const std::int32_t* seen, const token_range* runs,
            std::int32_t run_count, const gradient_scratch& scratch, float* dq);

/// Keys in fp32 that are read by tiles of rows.
struct gradient_keys {
  const float *keys, *values;  ///< [count][d]
  std::int32_t count, d;
  float scale;
};

/// `count` rows that read the keys.
struct row_tile {
  const char *const *queries, *const *d_out;  ///< [count]
  msabench_dtype query_type, d_out_type;
  row_sums sums;      ///< [whole vectors of count]
  const float* seen;  ///< how many of the keys, the first ones, each sees; [whole vectors of count]
  std::int32_t count;
};

/// dk, dv [keys][padded_columns(d)] += dS^T q and P^T dO, without softmax_scale.
void add_dk_dv(const gradient_keys& keys, const row_tile& rows, const gradient_scratch& scratch, float* dk, float* dv);

/// d elements times a factor, rounded once to their type. `values` is changed.
void store_scaled(float* values, float factor, std::int32_t d, msabench_dtype type, char* to);

}  // namespace msabench::cpu

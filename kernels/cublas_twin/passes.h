// SPDX-License-Identifier: Apache-2.0
// How the work of a problem is cut into passes whose operands fit into the workspace, and where they lie in it.
//
// A library multiplies matrices of one size that lie evenly, while sequences are ragged, paged and known to the device
// alone. So each pass copies what it needs into the workspace, in units of one size: a unit is the query lines of one KV
// head and some query tokens of a sequence, and a part of that sequence's keys. Sizes come from the bounds of the problem;
// what a sequence does not have is filled with zeros and masked.
#pragma once

#include <msabench/plugin.h>

#include <cstdint>

#include "kernels/common/types.h"

namespace msabench::cublas_twin {

/// Results of attention over one part of the keys, of a line: its sums are relative to the maximum.
struct line_sum {
  float maximum, weight;
};

struct passes {
  std::int64_t sequences = 1;  ///< of a pass; attend: rows of a pass, each with keys of its own
  std::int64_t queries = 1;    ///< query tokens of a sequence in a pass; attend: 1
  std::int64_t parts = 1;      ///< parts of the keys in a pass; attend: 1
  std::int64_t key_passes = 1;
  std::int64_t heads, group;         ///< KV heads, and query lines for each of them and token; score: 1, Hi
  std::int64_t keys, padded_keys;    ///< of a part; matrices have whole vectors of 8
  std::int64_t width, padded_width;  ///< d or di
  std::int64_t block, capacity;      ///< attend and score: keys of a block; attend: most blocks of a row
  bool attends, has_ids;

  MSABENCH_HOST_DEVICE std::int64_t units() const { return sequences * heads * parts; }
  MSABENCH_HOST_DEVICE std::int64_t lines() const { return queries * group; }
};

/// Passes of score, attend or dense.
passes passes_of(const msabench_problem& problem);

/// Places in the workspace of one run.
struct pass_memory {
  void* cublas;
  void *queries, *keys, *values;  ///< [units][lines or padded_keys][padded_width], values of attention only
  float* scores;                  ///< [units][lines][padded_keys]
  void* weights;                  ///< likewise, in the storage type
  float* outs;                    ///< [key_passes][units][lines][padded_width]
  line_sum* sums;                 ///< [key_passes][units][lines]
  std::int32_t* blocks;           ///< attend: [units][keys / block], then -1
  void* places;                   ///< attend: row_place [units]
  double bytes;                   ///< sizes that no machine has must not wrap around

  pass_memory(const passes& sizes, void* workspace);
};

}  // namespace msabench::cublas_twin
